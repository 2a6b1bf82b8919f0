{{/* Name of the release's objects, at most 63 characters. */}}
{{- define "ingot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change, for selectors. Takes (dict "root" . "component" "runtime"). */}}
{{- define "ingot.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "ingot.labels" -}}
{{ include "ingot.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Takes (dict "root" . "image" "runtime"). */}}
{{- define "ingot.image" -}}
{{- $image := .root.Values.image -}}
{{- $path := printf "%s/%s:%s" $image.repository .image (default .root.Chart.AppVersion $image.tag) -}}
{{- if $image.registry }}{{ printf "%s/%s" $image.registry $path }}{{ else }}{{ $path }}{{ end -}}
{{- end -}}

{{- define "ingot.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ingot.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What every pod has in common. Service links are off: for a service named `ingot-compiler` Kubernetes would set
     INGOT_COMPILER_PORT=tcp://..., which is the name of a setting. */}}
{{- define "ingot.pod" -}}
{{- $values := index .root.Values .values -}}
serviceAccountName: {{ include "ingot.serviceAccountName" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ingot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{/* A value as text. Numbers of a values file are floats to Helm: printed as they are, 268435456 would be 2.68435456e+08, which is no
     number to a service. */}}
{{- define "ingot.text" -}}
{{- if not (kindIs "float64" .) }}{{ . }}{{ else if eq (floor .) . }}{{ int64 . }}{{ else if gt . 1000.0 }}{{ printf "%.3f" . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* Variables of the object store, then those of `extraEnv`. Takes (dict "root" . "values" "runtime"). */}}
{{- define "ingot.storeEnv" -}}
- name: INGOT_STORE_URL
  value: {{ .root.Values.store.url | quote }}
{{- range $name, $value := .root.Values.store.env }}
- name: {{ $name }}
  value: {{ include "ingot.text" $value | quote }}
{{- end }}
{{- range $name, $value := (index .root.Values .values).extraEnv }}
- name: {{ $name }}
  value: {{ include "ingot.text" $value | quote }}
{{- end }}
{{- end -}}

{{- define "ingot.storeEnvFrom" -}}
{{- with .Values.store.existingSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end -}}

{{- define "ingot.compilerEnv" -}}
- name: INGOT_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .root.Values.redis.existingSecret }}
      key: {{ .root.Values.redis.key }}
{{- if eq .component "compiler-api" }}
- name: INGOT_ORDER_KEY
  value: /keys/order.pem
{{- else }}
- name: INGOT_SIGNING_KEY
  value: /keys/signing.pem
{{- end }}
- name: INGOT_TRUST
  value: /keys/trust
{{ include "ingot.storeEnv" . }}
{{- end -}}

{{/* A private key must be readable by its owner alone, which a mounted secret cannot be for a user other than root: it is
     copied into memory first. Workers get the one that signs, the API the one that orders; each sees of the other the public half. */}}
{{- define "ingot.keyCopy" -}}
- name: keys
  image: {{ include "ingot.image" . }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: ["/bin/sh", "-ec"]
  args:
    {{- $key := ternary "/orders/order.pem" "/secret/signing.pem" (eq .component "compiler-api") }}
    - install -m 0600 {{ $key }} /keys/{{ base $key }} && install -d -m 0700 /keys/trust /keys/trust/orders &&
      cp /secret/*.pub /keys/trust/ && cp /orders/*.pub /keys/trust/orders/
  securityContext:
    {{- include "ingot.containerSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: signing, mountPath: /secret, readOnly: true}
    - {name: orders, mountPath: /orders, readOnly: true}
    - {name: keys, mountPath: /keys}
{{- end -}}

{{- define "ingot.keyVolumes" -}}
- name: signing
  secret:
    secretName: {{ .root.Values.signing.existingSecret }}
    defaultMode: 0440
    {{- if eq .component "compiler-api" }}
    items: [{key: {{ .root.Values.signing.publicKey }}, path: {{ .root.Values.signing.publicKey }}}]
    {{- end }}
- name: orders
  secret:
    secretName: {{ .root.Values.orders.existingSecret }}
    defaultMode: 0440
    {{- if ne .component "compiler-api" }}
    items: [{key: {{ .root.Values.orders.publicKey }}, path: {{ .root.Values.orders.publicKey }}}]
    {{- end }}
- name: keys
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end -}}
