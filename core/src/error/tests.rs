//! What errors say, and that an error stays itself where a driver could have failed too.

#![allow(clippy::unwrap_used)]
#![allow(clippy::single_range_in_vec_init)] // a region of one axis

extern crate std;
use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::driver::null::NullError;
use crate::driver::{DropError, KernelError};

/// Every error that needs no driver, with its text.
fn all() -> Vec<(Error, &'static str)> {
    let region = Region::new(&[2..4]).unwrap();
    let busy = |holder| Error::Busy(Busy { region, holder });
    vec![
        (Error::Geometry(GeometryError::ZeroSized), "elements have no bytes"),
        (busy(Holder::Access), "[2..4] is held by a live guard or device access"),
        (busy(Holder::Call), "[2..4] is held by a call in progress"),
        (busy(Holder::Work), "[2..4] is held by unfinished device work"),
        (busy(Holder::Lock), "[2..4] is held by the tree's lock"),
        (
            Error::Full { table: Table::Nodes, capacity: 8 },
            "live views hold all 8 nodes of the tree's capacity (the root's is one)",
        ),
        (
            Error::Full { table: Table::Guards, capacity: 4 },
            "live guards hold all 4 accesses of the tree's capacity",
        ),
        (Error::Undefined { region, lost: false }, "[2..4] was never written"),
        (Error::Undefined { region, lost: true }, "[2..4] was lost with its device"),
        (Error::StaleHandle, "the handle's node or access is gone"),
        (Error::Misaligned { align: 16 }, "the storage is not aligned to 16 bytes"),
        (
            Error::WrongDriver,
            "views or kernel belong to different drivers (or to one device opened twice: clone its handle)",
        ),
        (
            Error::NoDevice { device: 3, devices: 2 },
            "device 3 asked for, where there is room for or are 2",
        ),
        (Error::SameDevice { device: 1 }, "device 1 is one that the tree already has"),
        (Error::NoHostStorage, "the tree has no host storage"),
        (Error::ReadOnly { region }, "[2..4] would be written to read-only host storage"),
        (Error::Wrapped, "the device's memory is the caller's"),
        (Error::NotWrapped, "the device's memory is not the caller's"),
        (Error::Resident, "the device already has memory for this tree"),
        (Error::LiveViews { views: 5, region }, "5 views are alive in [2..4]"),
        (Error::TooSmall { needed: 9, given: 8 }, "the root takes 9 bytes, the memory has 8"),
        (
            Error::TooLarge { span: 9, limit: 8 },
            "a window of 9 bytes is over the device's limit of 8",
        ),
        (Error::BadKernel, "a kernel needs a workgroup without zeroes and a granule of 1, 2 or 4"),
        (Error::Views { given: 1, expected: 2 }, "1 views given, 2 expected"),
        (Error::Params { given: 9, limit: 8 }, "9 bytes of parameters are over the limit of 8"),
        (Error::ZeroGroups, "a dispatch of no workgroups"),
        (
            Error::Groups { axis: 1, given: 9, limit: 8 },
            "9 workgroups on axis 1 are over the limit of 8",
        ),
        (Error::Overlap { region }, "two views of the launch share [2..4], and one is written"),
        (Error::Mismatch, "source and destination have different extents"),
        (Error::Lost { region: None, boxes: 0, cause: None }, "the device is lost"),
        (
            Error::Lost { region: Some(region), boxes: 2, cause: None },
            "the device is lost; 2 boxes only it held are lost, first [2..4]",
        ),
    ]
}

#[test]
fn errors_say_their_numbers() {
    for (error, text) in all() {
        assert_eq!(error.to_string(), text);
    }
}

/// Where a driver can fail too, an error is the same error, and only the driver's have a kind.
#[test]
fn errors_stay_themselves() {
    for (error, text) in all() {
        let lifted: Error<NullError> = error.lift();
        assert_eq!(lifted.to_string(), text);
        // Their names and fields too.
        assert_eq!(format!("{lifted:?}"), format!("{error:?}"));
        let kind = match error {
            Error::Lost { .. } => Some(ErrorKind::DeviceLost),
            Error::ReadOnly { .. } => Some(ErrorKind::Unsupported),
            _ => None,
        };
        assert_eq!(lifted.kind(), kind);
    }
    let region = Region::new(&[2..4]).unwrap();
    let driver = Error::Driver(NullError);
    assert_eq!(driver.kind(), Some(ErrorKind::Unsupported));
    assert_eq!(driver.to_string(), NullError.to_string());
    let lost = Error::Lost { region: Some(region), boxes: 1, cause: Some(NullError) };
    assert!(lost.to_string().starts_with(&NullError.to_string()));
    assert_eq!(
        Error::<NullError>::from(GeometryError::BadPermutation),
        Error::Geometry(GeometryError::BadPermutation)
    );
}

#[test]
fn drivers_and_kernels_say_their_numbers() {
    let kinds = [
        (ErrorKind::OutOfMemory, "out of memory"),
        (ErrorKind::TooLarge, "too large"),
        (ErrorKind::Budget, "over budget"),
        (ErrorKind::DeviceLost, "device lost"),
        (ErrorKind::Timeout, "timed out"),
        (ErrorKind::Unsupported, "unsupported"),
        (ErrorKind::Misaligned, "misaligned"),
        (ErrorKind::Other, "failed"),
    ];
    for (kind, text) in kinds {
        assert_eq!(kind.to_string(), text);
    }
    let dropped =
        DropError { kind: ErrorKind::Timeout, region: Region::new(&[2..4]).unwrap(), bytes: 8 };
    assert_eq!(
        dropped.to_string(),
        "a dropped tree could not write back 8 bytes of [2..4]: timed out"
    );
    let kernels = [
        (
            KernelError::NoView { index: 2, given: 1 },
            "it takes a view 2, and the launch gave 1 views",
        ),
        (
            KernelError::Rank { asked: 3, given: 2 },
            "it goes through a view of 2 axes with coordinates of 3",
        ),
        (
            KernelError::Element { index: 0, asked: 4, given: 2 },
            "view 0: it takes elements of 4 bytes, aligned, and the view's have 2",
        ),
        (
            KernelError::Params { asked: 4, given: 0 },
            "it takes 4 bytes of parameters, and the launch gave 0",
        ),
        (KernelError::Refused("not today"), "not today"),
    ];
    for (error, text) in kernels {
        assert_eq!(error.to_string(), text);
    }
}
