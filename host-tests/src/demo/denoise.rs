//! The second part: a photograph's luma and chroma denoised as two parts of one buffer.
//!
//! ```text
//! photo  --mix-->  noisy: Y      --nlm-------->  clean: Y      --mix-->  photo
//! R G B                   Co Cg  --bilateral-->         Co Cg            R G B
//! ```

use std::error::Error;

use hedgerow::driver::ComputeDriver;
use hedgerow::{Counters, Shape, Tree};

use super::freshness::{self, Fresh};
use super::kernels::{self, Bilateral, Nlm};
use super::picture::{Photo, psnr};
use super::report::Line;

/// R, G, B to Y, Co, Cg: a row for each.
const TO_YCOCG: [[f32; 3]; 3] = [[0.25, 0.5, 0.25], [0.5, 0.0, -0.5], [-0.25, 0.5, -0.25]];

/// And back.
const TO_RGB: [[f32; 3]; 3] = [[1.0, 1.0, -1.0], [1.0, 0.0, 1.0], [1.0, -1.0, -1.0]];

/// Set by trying, for the noise that [`Photo`] adds.
const LUMA: Nlm = Nlm { search: 5, patch: 1, noise: 0.03, scale: 1.0 / 0.08 };
const CHROMA: Bilateral = Bilateral { radius: 7, reach: 1.0 / 64.0, scale: 1.0 / 0.16 };

/// What the filters must gain, in dB.
const GAIN: f64 = 2.0;

/// The states that [`Denoised::moments`] shows.
pub(super) const MOMENTS: [&str; 2] =
    ["luma is denoised, and the host has read a part of it", "chroma is denoised too"];

/// What the pipeline gives.
pub(super) struct Denoised {
    /// R, G and B, from 0 to 1.
    pub(super) planes: Vec<f32>,
    /// What was fresh where in the denoised planes.
    pub(super) moments: [Vec<Fresh>; 2],
    /// What each tree moved: `photo`, `noisy`, `clean`.
    moved: [Counters; 3],
    /// Bytes of the part that the host read.
    detail: u64,
}

/// The pipeline.
pub(super) fn run<D: ComputeDriver>(gpu: &D, input: &Photo) -> Result<Denoised, Box<dyn Error>> {
    let mix = kernels::MIX.load(gpu)?;
    let nlm = kernels::NLM.load(gpu)?;
    let bilateral = kernels::BILATERAL.load(gpu)?;

    let (width, height) = (input.width as i32, input.height as i32);
    let shape = Shape::packed([input.width, input.height, 3]);
    let mut pixels = input.noisy.clone();
    let (mut before, mut after) = (vec![0.0; pixels.len()], vec![0.0; pixels.len()]);
    let photo = Tree::over(&mut pixels, shape, gpu)?;
    let noisy = Tree::over(&mut before, shape, gpu)?;
    let clean = Tree::over(&mut after, shape, gpu)?;

    mix.launch((photo.root().as_read(), noisy.root().as_overwrite()), TO_YCOCG)?;

    // Channel 0, as a slice.
    let luma = clean.root().slice(2, 0)?;
    nlm.launch((noisy.root().slice(2, 0)?.as_read(), luma.as_overwrite()), LUMA)?;

    // A look at a part of it, while the other channels of the buffer are still to be written.
    let detail = luma.crop([width / 3..width / 2, height / 4..height / 2])?;
    drop(detail.read()?);
    let luma_done = freshness::of(&clean.root())?;

    // Channels 1 and 2, as a crop.
    let chroma = [0..width, 0..height, 1..3];
    let [from, to] = [noisy.root().crop(chroma.clone())?, clean.root().crop(chroma)?];
    bilateral.launch((from.as_read(), to.as_overwrite()), CHROMA)?;
    let chroma_done = freshness::of(&clean.root())?;

    // The whole buffer, read on the device, and what comes of it on the host.
    mix.launch((clean.root().as_read(), photo.root().as_overwrite()), TO_RGB)?;
    let mut planes = vec![0.0; input.noisy.len()];
    photo.root().read()?.copy_to_slice(&mut planes);

    for tree in [&photo, &noisy, &clean] {
        tree.check()?;
    }
    Ok(Denoised {
        planes: planes.iter().map(|value: &f32| value.clamp(0.0, 1.0)).collect(),
        moments: [luma_done, chroma_done],
        moved: [photo.counters(), noisy.counters(), clean.counters()],
        detail: detail.region().volume() * size_of::<f32>() as u64,
    })
}

impl Denoised {
    /// Judges a run.
    pub(super) fn line(&self, input: &Photo) -> Line {
        let root = size_of_val(input.noisy.as_slice()) as u64;
        let moved = self.moved.map(|m| (m.bytes_up, m.bytes_down, m.bytes_widened));
        // The photo goes up and its result comes down; nothing else does but what the host looked at.
        let expected = [(root, root, 0), (0, 0, 0), (0, self.detail, 0)];
        let noisy = psnr(&input.clean, &input.noisy);
        let denoised = psnr(&input.clean, &self.planes);
        Line {
            ok: moved == expected && denoised >= noisy + GAIN,
            bytes_up: Some(moved.iter().map(|m| m.0).sum()),
            bytes_down: Some(moved.iter().map(|m| m.1).sum()),
            // Photo up; clean up, since a kernel writes a part of it; clean down, since the host reads a part of
            // it; photo down.
            bytes_whole_buffer: Some(4 * root),
            psnr_noisy: Some(noisy),
            psnr_denoised: Some(denoised),
            ..Line::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use hedgerow_host::Host;

    use super::*;

    #[test]
    fn ycocg_round_trip() {
        let apply = |matrix: [[f32; 3]; 3], v: [f32; 3]| {
            matrix.map(|row| row.iter().zip(v).map(|(m, v)| m * v).sum::<f32>())
        };
        for rgb in [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.9, 0.1, 0.3], [0.2, 0.7, 1.0]] {
            let ycocg = apply(TO_YCOCG, rgb);
            let back = apply(TO_RGB, ycocg);
            assert!(back.iter().zip(rgb).all(|(a, b)| (a - b).abs() < 1e-6), "{rgb:?} {back:?}");
        }
        assert_eq!(apply(TO_YCOCG, [0.5; 3]), [0.5, 0.0, 0.0]);
    }

    /// The pipeline on a small picture: two flat halves.
    #[test]
    fn a_small_picture() {
        let value = |i: usize| if i % 36 < 18 { 0.2 } else { 0.8 };
        let input = Photo::with_noise(36, 20, (0..36 * 20 * 3).map(value).collect());
        let denoised = run(&Host::new(), &input).expect("it runs");
        let line = denoised.line(&input);
        assert!(line.ok, "{line:?} {:?}", denoised.moved);

        let [luma_done, chroma_done] = &denoised.moments;
        let count = |moment: &[Fresh], host, device| {
            moment.iter().filter(|fresh| **fresh == Fresh { host, device }).count()
        };
        let (area, detail) = (36 * 20, 6 * 5);
        assert_eq!(count(luma_done, true, true), detail);
        assert_eq!(count(luma_done, false, true), area - detail);
        assert_eq!(count(luma_done, true, false), 2 * area);
        assert_eq!(count(chroma_done, true, true), detail);
        assert_eq!(count(chroma_done, false, true), 3 * area - detail);
    }
}
