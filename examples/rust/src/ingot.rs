//! A compiled model, loaded at run time: `ingot.h` as safe Rust, for float32. No crates: `dlopen` comes from the C library that `std` links.

use std::ffi::{c_void, CStr, CString};
use std::os::raw::{c_char, c_int};
use std::path::Path;
use std::ptr;

const MAX_RANK: usize = 16;
const FLOAT: i32 = 1;
const NOW: c_int = 2;

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    shape: *mut i64,
    rank: i32,
    dtype: i32,
}

#[repr(C)]
struct RawInfo {
    name: *const c_char,
    dtype: i32,
    rank: i32,
    shape: *const i64,
    shape_symbols: *const *const c_char,
}

#[repr(C)]
struct RawOptions {
    struct_size: usize,
    weights: *const c_void,
    weights_size: usize,
    threads: i32,
    thread_pool: *const c_void,
    memory_limit: usize,
    memory_kept: usize,
}

type Count = unsafe extern "C" fn() -> i32;
type Info = unsafe extern "C" fn(i32) -> *const RawInfo;
type Name = unsafe extern "C" fn(i32) -> *const c_char;
type Create = unsafe extern "C" fn(*const RawOptions, *mut *mut c_void) -> i32;
type Destroy = unsafe extern "C" fn(*mut c_void);
type Call = unsafe extern "C" fn(*mut c_void, *const RawTensor, i32, *mut RawTensor, i32) -> i32;
type LastError = unsafe extern "C" fn(*mut c_void) -> *const c_char;

/// Name and extents of an input or output; an extent that the model leaves open is -1.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: i32,
    pub shape: Vec<i64>,
}

/// Floats in row-major order, and their extents.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub data: Vec<f32>,
    pub shape: Vec<i64>,
}

/// A model of a library with the weights inside (`ingot compile --bundle-library`).
pub struct Model {
    handle: *mut c_void,
    destroy: Destroy,
    last_error: LastError,
    output_shapes: Call,
    run: Call,
    pub inputs: Vec<TensorInfo>,
    pub outputs: Vec<TensorInfo>,
    pub kernels: Vec<String>,
}

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: what the library and the loader hand out are strings that end with 0 and outlive the call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// The function `name` of `library`, as type `T`.
fn symbol<T: Copy>(library: *mut c_void, name: &str) -> Result<T, String> {
    assert_eq!(std::mem::size_of::<T>(), std::mem::size_of::<*mut c_void>());
    let wanted = CString::new(name).expect("a name without 0");
    // SAFETY: `library` was opened and is never closed.
    let found = unsafe { dlsym(library, wanted.as_ptr()) };
    if found.is_null() {
        return Err(format!("the library has no {name}: {}", text(unsafe { dlerror() })));
    }
    // SAFETY: a pointer to a function is as large as one to data here, and ingot.h says what type it has.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn described(count: Count, info: Info) -> Vec<TensorInfo> {
    // SAFETY: indices below the count have an info, which is constant data of the library.
    (0..unsafe { count() })
        .map(|i| unsafe { &*info(i) })
        .map(|raw| TensorInfo {
            name: text(raw.name),
            dtype: raw.dtype,
            shape: (0..raw.rank as usize).map(|axis| unsafe { *raw.shape.add(axis) }).collect(),
        })
        .collect()
}

impl Model {
    /// Load the library at `path`, whose runs use so many threads; 0: one for each core.
    pub fn load(path: &Path, threads: i32) -> Result<Model, String> {
        let file = CString::new(path.to_string_lossy().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: a path that ends with 0. The library stays loaded until the process ends.
        let library = unsafe { dlopen(file.as_ptr(), NOW) };
        if library.is_null() {
            return Err(text(unsafe { dlerror() }));
        }
        let last_error: LastError = symbol(library, "ingot_last_error")?;
        let create: Create = symbol(library, "ingot_create")?;
        let options = RawOptions {
            struct_size: std::mem::size_of::<RawOptions>(),
            weights: ptr::null(),
            weights_size: 0,
            threads,
            thread_pool: ptr::null(),
            memory_limit: 0,
            memory_kept: 0,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: options as ingot.h has them.
        if unsafe { create(&options, &mut handle) } != 0 {
            return Err(text(unsafe { last_error(ptr::null_mut()) }));
        }
        let kernels: Count = symbol(library, "ingot_kernel_count")?;
        let kernel: Name = symbol(library, "ingot_kernel_name")?;
        Ok(Model {
            handle,
            destroy: symbol(library, "ingot_destroy")?,
            last_error,
            output_shapes: symbol(library, "ingot_output_shapes")?,
            run: symbol(library, "ingot_run")?,
            inputs: described(symbol(library, "ingot_input_count")?, symbol(library, "ingot_input_info")?),
            outputs: described(symbol(library, "ingot_output_count")?, symbol(library, "ingot_output_info")?),
            kernels: (0..unsafe { kernels() }).map(|i| text(unsafe { kernel(i) })).collect(),
        })
    }

    /// One inference. Inputs in the order of [`Model::inputs`]; what the model does not take is an error that says so.
    pub fn run(&mut self, inputs: &mut [Tensor]) -> Result<Vec<Tensor>, String> {
        for (given, info) in inputs.iter().zip(&self.inputs) {
            let count: i64 = given.shape.iter().product();
            if info.dtype != FLOAT || given.data.len() as i64 != count {
                return Err(format!("input {}: not so many floats as its shape says", info.name));
            }
        }
        let given: Vec<RawTensor> = inputs
            .iter_mut()
            .map(|t| RawTensor {
                data: t.data.as_mut_ptr().cast(),
                shape: t.shape.as_mut_ptr(),
                rank: t.shape.len() as i32,
                dtype: FLOAT,
            })
            .collect();
        let mut shapes: Vec<Vec<i64>> = self.outputs.iter().map(|info| vec![0; info.shape.len().max(MAX_RANK)]).collect();
        let mut made: Vec<RawTensor> = shapes
            .iter_mut()
            .zip(&self.outputs)
            .map(|(shape, info)| RawTensor {
                data: ptr::null_mut(),
                shape: shape.as_mut_ptr(),
                rank: info.shape.len() as i32,
                dtype: info.dtype,
            })
            .collect();
        self.call(self.output_shapes, &given, &mut made)?;
        let mut data: Vec<Vec<f32>> = Vec::new();
        for (raw, (shape, info)) in made.iter_mut().zip(shapes.iter_mut().zip(&self.outputs)) {
            shape.truncate(info.shape.len());
            if info.dtype != FLOAT || shape.iter().any(|extent| *extent < 0) {
                return Err(format!("output {}: this program takes floats of a known shape alone", info.name));
            }
            let mut own = vec![0.0f32; shape.iter().product::<i64>() as usize];
            raw.data = own.as_mut_ptr().cast();
            data.push(own);
        }
        self.call(self.run, &given, &mut made)?;
        Ok(data.into_iter().zip(shapes).map(|(data, shape)| Tensor { data, shape }).collect())
    }

    fn call(&self, function: Call, given: &[RawTensor], made: &mut [RawTensor]) -> Result<(), String> {
        // SAFETY: the tensors point at memory of their shapes, and the library checks shapes and types before it computes.
        let status =
            unsafe { function(self.handle, given.as_ptr(), given.len() as i32, made.as_mut_ptr(), made.len() as i32) };
        if status == 0 {
            return Ok(());
        }
        Err(text(unsafe { (self.last_error)(self.handle) }))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the handle came from ingot_create, and nobody uses it any more.
        unsafe { (self.destroy)(self.handle) }
    }
}
