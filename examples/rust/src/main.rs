//! A compiled model from Rust: what goes in and what comes out, one inference over ones, the kernels by name.
//!
//!     ingot compile model.onnx --name model --local --bundle-library --out build
//!     cargo run --manifest-path examples/rust/Cargo.toml -- build/model.*.so
//!
//! Extents that the model leaves open are 1 here.

mod ingot;

use ingot::{Model, Tensor};
use std::path::PathBuf;
use std::process::ExitCode;

fn inference(path: PathBuf) -> Result<(), String> {
    let mut model = Model::load(&path, 1)?;
    for (kind, infos) in [("input", &model.inputs), ("output", &model.outputs)] {
        for info in infos {
            println!("{kind} {}: type {} {:?}", info.name, info.dtype, info.shape);
        }
    }
    let mut inputs: Vec<Tensor> = model
        .inputs
        .iter()
        .map(|info| info.shape.iter().map(|extent| if *extent < 0 { 1 } else { *extent }).collect::<Vec<i64>>())
        .map(|shape| Tensor { data: vec![1.0; shape.iter().product::<i64>() as usize], shape })
        .collect();
    let outputs = model.run(&mut inputs)?;
    for (info, output) in model.outputs.iter().zip(outputs) {
        let shown: Vec<String> = output.data.iter().take(4).map(|x| x.to_string()).collect();
        println!("{}: {} ({} elements of {:?})", info.name, shown.join(" "), output.data.len(), output.shape);
    }
    println!("kernels: {}", model.kernels.join(" "));
    Ok(())
}

fn main() -> ExitCode {
    let path = match std::env::args_os().nth(1) {
        Some(path) => path,
        None => {
            eprintln!("usage: ingot-run LIBRARY");
            return ExitCode::from(2);
        }
    };
    match inference(path.into()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
