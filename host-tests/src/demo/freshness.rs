//! A picture of what is fresh where in a buffer of three planes, at some moments.

use std::path::Path;

use hedgerow::driver::{CopyBox, DeviceDriver};
use hedgerow::{Error, Location, Mode, View};
use image::{ImageFormat, ImageResult, Rgb, RgbImage};

use super::picture::Photo;

/// Where an element is fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fresh {
    pub(super) host: bool,
    pub(super) device: bool,
}

/// What the colours mean.
pub(super) const LEGEND: &str = "blue on the host only, orange on the device only, green on both";

impl Fresh {
    fn colour(self) -> [f32; 3] {
        match (self.host, self.device) {
            (true, false) => [0.20, 0.45, 1.00],
            (false, true) => [1.00, 0.50, 0.05],
            (true, true) => [0.20, 0.85, 0.30],
            (false, false) => [0.0; 3],
        }
    }
}

/// Where each element of a whole dense root is fresh: not where reading it would bring it.
pub(super) fn of<D: DeviceDriver>(root: &View<'_, f32, D>) -> Result<Vec<Fresh>, Error<D::Error>> {
    let volume = root.region().volume() as usize;
    let mut fresh = vec![Fresh { host: true, device: true }; volume];
    let each = |copy: &CopyBox, stale: &mut dyn FnMut(usize)| {
        copy.for_each_run(|_, to| {
            (to..to + copy.run).step_by(4).for_each(|b| stale(b as usize / 4))
        });
    };
    root.plan_each(Location::Host, Mode::Read, |_, _, copy| {
        each(copy, &mut |element| fresh[element].host = false);
    })?;
    root.plan_each(Location::Device(0), Mode::Read, |_, _, copy| {
        each(copy, &mut |element| fresh[element].device = false);
    })?;
    Ok(fresh)
}

/// One row of panels for each moment, one panel for each plane, over the photograph's green.
pub(super) fn save(path: &Path, photo: &Photo, moments: &[Vec<Fresh>]) -> ImageResult<()> {
    const GAP: u32 = 8;
    let (width, height) = (photo.width, photo.height);
    let area = (width * height) as usize;
    let rows = moments.len() as u32;
    let mut image =
        RgbImage::from_pixel(3 * (width + GAP) + GAP, rows * (height + GAP) + GAP, Rgb([255; 3]));
    for (row, moment) in (0..).zip(moments) {
        for (at, fresh) in moment.iter().enumerate() {
            let (plane, pixel) = ((at / area) as u32, at % area);
            let (x, y) = (pixel as u32 % width, pixel as u32 / width);
            let light = 0.25 + 0.75 * photo.clean[area + pixel];
            let colour = fresh.colour().map(|c| (c * light * 255.0).round() as u8);
            image.put_pixel(
                GAP + plane * (width + GAP) + x,
                GAP + row * (height + GAP) + y,
                Rgb(colour),
            );
        }
    }
    image.save_with_format(path, ImageFormat::Png)
}
