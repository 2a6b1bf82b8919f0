# A version as an image for `storageUri: oci://`, in a folder where `ingot compile --out version` wrote it:
#   docker build -f deploy/kserve/model.Dockerfile -t registry.example/models/classifier:1 FOLDER
# KServe starts it beside the server for its `sh`, `ln` and `sleep`, and links /mnt/models to its /models.
FROM busybox:1.37.0
COPY version /models
