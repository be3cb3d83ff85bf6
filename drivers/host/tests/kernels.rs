//! Kernels: which form is taken, and what a call is given.

mod common;

use common::{contents, host, upload};
use hedgerow::driver::{
    Binding, ComputeDriver, Contents, CopyBox, DeviceCode, DeviceDriver, Dispatch, DriverError,
    ErrorKind, Form, Geometry, HostCall, HostKernel, KernelError, KernelSource,
};
use hedgerow::region::PerAxis;
use hedgerow::tree::Mode;
use hedgerow_host::{HostError, HostMemory};

fn source<'a>(views: usize, forms: &'a [Form<'a>]) -> KernelSource<'a> {
    KernelSource { name: "test", views, workgroup: [1, 1, 1], granule: 1, forms }
}

/// `out = in + parameter`, element by element.
fn add(call: &HostCall<'_>) -> Result<(), KernelError> {
    let (from, to) = (call.view::<i32>(0)?, call.view::<i32>(1)?);
    let more: i32 = call.params()?;
    to.for_each(|at: [i32; 2]| {
        if let Some(value) = from.get(at) {
            to.set(at, value + more);
        }
    });
    Ok(())
}

fn refuse(_: &HostCall<'_>) -> Result<(), KernelError> {
    Err(KernelError::Refused("not today"))
}

/// A window of 3 by 2 elements of a root with rows of 8.
fn window(memory: HostMemory, offset: u64, mode: Mode) -> Binding<HostMemory> {
    let geometry = Geometry {
        rank: 2,
        origin: 4,
        min: PerAxis::from_slice(&[10, -1], 0),
        extent: PerAxis::from_slice(&[3, 2], 1),
        stride: PerAxis::from_slice(&[4, 32], 0),
    };
    Binding { memory, offset, bytes: 4 + 2 * 4 + 32 + 4, geometry, element: 4, mode }
}

fn dispatch(
    host: &impl ComputeDriver<Memory = HostMemory, Kernel = HostKernel, Error = HostError>,
    kernel: &HostKernel,
    views: &[Binding<HostMemory>],
    params: &[u8],
) -> Result<(), HostError> {
    let run = Dispatch { views, params, groups: [1, 1, 1] };
    // SAFETY: the test's windows are inside their memories (the driver checks), used by nobody else.
    unsafe { host.dispatch(kernel, &run, &[]) }.map(drop)
}

#[test]
fn a_dispatch_touches_its_elements_alone() {
    let host = host(1024);
    let memory = host.allocate(256, Contents::Zeroed).unwrap().memory;
    let out = host.allocate(256, Contents::Zeroed).unwrap().memory;
    let ramp: Vec<u8> = (0..64i32).flat_map(i32::to_le_bytes).collect();
    upload(&host, &ramp, memory, &[CopyBox::flat(0, 0, 256)]).unwrap();
    let kernel = host.load_kernel(&source(2, &[Form::Host(add)])).unwrap();
    let views = [window(memory, 64, Mode::Read), window(out, 128, Mode::Overwrite)];
    dispatch(&host, &kernel, &views, &1000i32.to_le_bytes()).unwrap();

    let mut expected = [0i32; 64];
    for (x, y) in (0..2).flat_map(|y| (0..3).map(move |x| (x, y))) {
        expected[33 + x + 8 * y] = 1000 + (17 + x + 8 * y) as i32;
    }
    let expected: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(contents(&host, out, 256), expected);
    assert_eq!(contents(&host, memory, 256), ramp);
}

#[test]
fn the_first_host_form_is_taken() {
    let host = host(64);
    // SAFETY: no driver here runs it.
    let wgsl = unsafe { DeviceCode::new("", "main") };
    let forms = [Form::Wgsl(wgsl), Form::Host(refuse), Form::Host(add)];
    let kernel = host.load_kernel(&source(0, &forms)).unwrap();
    let refused = HostError::Kernel(KernelError::Refused("not today"));
    assert_eq!(dispatch(&host, &kernel, &[], &[]), Err(refused));
    assert_eq!(refused.kind(), ErrorKind::Other);
    assert_eq!(refused.to_string(), "the kernel refused to run: not today");

    for forms in [&[][..], &forms[..1]] {
        let error = host.load_kernel(&source(0, forms)).unwrap_err();
        assert_eq!((error, error.kind()), (HostError::NoForm, ErrorKind::Unsupported));
    }
    let error = host.load_kernel(&source(9, &forms)).unwrap_err();
    assert_eq!(error, HostError::Views { given: 9, limit: 8 });
}

#[test]
fn mistakes_of_a_kernel_are_errors() {
    let host = host(1024);
    let memory = host.allocate(256, Contents::Zeroed).unwrap().memory;
    let kernel = host.load_kernel(&source(2, &[Form::Host(add)])).unwrap();
    let one = [window(memory, 0, Mode::Update)];
    assert_eq!(
        dispatch(&host, &kernel, &one, &[0; 4]),
        Err(HostError::Kernel(KernelError::NoView { index: 1, given: 1 }))
    );
    let two = [one[0]; 2];
    assert_eq!(
        dispatch(&host, &kernel, &two, &[0; 3]),
        Err(HostError::Kernel(KernelError::Params { asked: 4, given: 3 }))
    );
    let nine = [one[0]; 9];
    assert_eq!(
        dispatch(&host, &kernel, &nine, &[0; 4]),
        Err(HostError::Views { given: 9, limit: 8 })
    );
    host.simulate_loss();
    assert_eq!(dispatch(&host, &kernel, &two, &[0; 4]), Err(HostError::DeviceLost));
    assert_eq!(
        host.load_kernel(&source(2, &[Form::Host(add)])).unwrap_err(),
        HostError::DeviceLost
    );
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "is not aligned")]
fn a_stricter_device_insists_on_its_alignment() {
    let host = host(1024).bind_align(256);
    let memory = host.allocate(512, Contents::Zeroed).unwrap().memory;
    let _ = dispatch(&host, &(add as HostKernel), &[window(memory, 64, Mode::Read)], &[]);
}

/// A kernel written for another rank must not pass for one that wrote its view.
#[test]
fn coordinates_of_another_rank_are_an_error() {
    fn fill(call: &HostCall<'_>) -> Result<(), KernelError> {
        let out = call.view::<u8>(0)?;
        out.for_each(|[x, y]| out.set([x, y], 7));
        Ok(())
    }
    fn peek(call: &HostCall<'_>) -> Result<(), KernelError> {
        let _ = call.view::<u8>(0)?.get([0, 0, 0]);
        Ok(())
    }
    let gpu = hedgerow_host::Host::new();
    let mut line = [1u8; 6];
    let tree = hedgerow::Tree::over(&mut line, hedgerow::Shape::packed([6]), &gpu).unwrap();
    for (kernel, asked) in [(fill as hedgerow::driver::HostKernel, 2), (peek, 3)] {
        let forms = [hedgerow::driver::Form::Host(kernel)];
        let source = hedgerow::driver::KernelSource {
            name: "other rank",
            views: 1,
            workgroup: [1; 3],
            granule: 1,
            forms: &forms,
        };
        let kernel = gpu.load(&source).unwrap();
        let refused = kernel.launch(tree.root().as_overwrite(), ()).unwrap_err();
        let why = KernelError::Rank { asked, given: 1 };
        assert_eq!(refused, hedgerow::Error::Driver(hedgerow_host::HostError::Kernel(why)));
    }
    // Nothing was written, and nothing counts as written.
    assert_eq!(tree.root().read().unwrap().as_slice(), Some(&[1u8; 6][..]));
    assert_eq!(tree.counters().bytes_down, 0);
}

/// Rows of what is written are cells, rows of what is read are slices; neither is the other, and only
/// contiguous elements have them.
#[test]
fn rows() {
    fn twice(call: &HostCall<'_>) -> Result<(), KernelError> {
        let (from, to) = (call.view::<i32>(0)?, call.view::<i32>(1)?);
        if from.row([10, -1]).is_some() || to.read_row([10, -1]).is_some() {
            return Err(KernelError::Refused("a row of the other kind"));
        }
        if from.read_row([0, 1]).is_some() || to.row([0, -2]).is_some() {
            return Err(KernelError::Refused("a row outside"));
        }
        if from.read_row([]).is_some() || to.row([]).is_some() {
            return Err(KernelError::Refused("a row of no axis"));
        }
        for y in -1..1 {
            // The first coordinate is ignored.
            let (Some(from), Some(to)) = (from.read_row([99, y]), to.row([-99, y])) else {
                return Err(KernelError::Refused("no row"));
            };
            if from.len() != 3 || to.len() != 3 {
                return Err(KernelError::Refused("not the whole row"));
            }
            from.iter().zip(to).for_each(|(from, to)| to.set(from * 2));
        }
        Ok(())
    }
    fn no_rows(call: &HostCall<'_>) -> Result<(), KernelError> {
        let (from, to) = (call.view::<i32>(0)?, call.view::<i32>(1)?);
        match (from.read_row([10, -1]), to.row([10, -1])) {
            (None, None) => Ok(()),
            _ => Err(KernelError::Refused("a row with gaps")),
        }
    }
    let host = host(1024);
    let memory = host.allocate(256, Contents::Zeroed).unwrap().memory;
    let out = host.allocate(256, Contents::Zeroed).unwrap().memory;
    let ramp: Vec<u8> = (0..64i32).flat_map(i32::to_le_bytes).collect();
    upload(&host, &ramp, memory, &[CopyBox::flat(0, 0, 256)]).unwrap();
    let mut views = [window(memory, 64, Mode::Read), window(out, 128, Mode::Overwrite)];
    let load = |kernel| host.load_kernel(&source(2, &[Form::Host(kernel)])).unwrap();
    dispatch(&host, &load(twice), &views, &[]).unwrap();
    let mut expected = [0i32; 64];
    for (x, y) in (0..2).flat_map(|y| (0..3).map(move |x| (x, y))) {
        expected[33 + x + 8 * y] = 2 * (17 + x + 8 * y) as i32;
    }
    assert_eq!(contents(&host, out, 256), expected.map(i32::to_le_bytes).concat());

    // Every second element; and a single one, which has no neighbour to be apart from.
    for view in &mut views {
        view.geometry.extent.set(0, 2);
        view.geometry.stride.set(0, 8);
    }
    dispatch(&host, &load(no_rows), &views, &[]).unwrap();
    for view in &mut views {
        view.geometry.extent.set(0, 1);
    }
    let refused = dispatch(&host, &load(no_rows), &views, &[]);
    assert!(refused.is_err(), "a row of one element is one");
}

/// Forms and code say what they are; a driver takes the first that it can run.
#[test]
fn forms() {
    // SAFETY: it is no code at all, and nobody runs it.
    let words = unsafe { DeviceCode::new(&[7u32, 8][..], "main") };
    // SAFETY: as above.
    let text = unsafe { DeviceCode::new("text", "entry") };
    assert_eq!((words.code(), words.entry()), (&[7u32, 8][..], "main"));
    assert_eq!((text.code(), text.entry()), ("text", "entry"));
    let forms = [
        Form::Spirv(words),
        Form::Wgsl(text),
        Form::OpenClC(text),
        Form::Ptx(text),
        Form::Host(refuse),
    ];
    assert_eq!(format!("{forms:?}"), "[Spirv, Wgsl, OpenClC, Ptx, Host]");
    let host = host(64);
    assert!(host.load_kernel(&source(0, &forms)).is_ok());
    assert!(host.load_kernel(&source(0, &forms[..4])).is_err());
}
