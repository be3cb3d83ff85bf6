//! Pictures: the photograph, its noise, how far two are apart, and PNG files.

use std::path::Path;

use image::{ImageFormat, ImageResult, RgbImage};

/// The photograph, in the program itself so that it runs anywhere.
const CHELSEA: &[u8] = include_bytes!("../../data/chelsea.png");

const SEED: u64 = 8395;

/// The noise's standard deviation, where white is 1.
pub(super) const SIGMA: f32 = 0.08;

/// A photograph in three planes, each row by row, of values from 0 to 1; and the same with noise.
pub(super) struct Photo {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) clean: Vec<f32>,
    pub(super) noisy: Vec<f32>,
}

impl Photo {
    pub(super) fn load() -> ImageResult<Self> {
        let image = image::load_from_memory_with_format(CHELSEA, ImageFormat::Png)?.to_rgb8();
        let plane = |c: usize| image.pixels().map(move |pixel| f32::from(pixel.0[c]) / 255.0);
        let clean: Vec<f32> = (0..3).flat_map(plane).collect();
        Ok(Self::with_noise(image.width(), image.height(), clean))
    }

    pub(super) fn with_noise(width: u32, height: u32, clean: Vec<f32>) -> Self {
        let mut random = Random(SEED);
        let noisy = clean.iter().map(|v| (v + SIGMA * random.normal()).clamp(0.0, 1.0)).collect();
        Self { width, height, clean, noisy }
    }

    pub(super) fn save(&self, path: &Path, planes: &[f32]) -> ImageResult<()> {
        let area = (self.width * self.height) as usize;
        RgbImage::from_fn(self.width, self.height, |x, y| {
            let at = (y * self.width + x) as usize;
            let byte = |c: usize| (planes[c * area + at].clamp(0.0, 1.0) * 255.0).round() as u8;
            image::Rgb([byte(0), byte(1), byte(2)])
        })
        .save_with_format(path, ImageFormat::Png)
    }
}

/// The peak signal-to-noise ratio of two pictures in dB, where the peak is 1.
pub(super) fn psnr(a: &[f32], b: &[f32]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    -10.0 * (squares / a.len().min(b.len()) as f64).log10()
}

/// The same numbers on every machine: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// About normal: a sum of twelve, without the logarithms that differ from machine to machine.
    fn normal(&mut self) -> f32 {
        let uniform = |bits: u64| (bits >> 40) as f32 / (1u32 << 24) as f32;
        (0..12).map(|_| uniform(self.next())).sum::<f32>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_same_everywhere() {
        let mut random = Random(0);
        // The generator's published first values.
        assert_eq!(random.next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.next(), 0x6E78_9E6A_A1B9_65F4);
        let noise = |seed| {
            let mut random = Random(seed);
            (0..10_000).map(|_| random.normal()).collect::<Vec<_>>()
        };
        assert_eq!(noise(SEED), noise(SEED));
        assert_ne!(noise(SEED), noise(SEED + 1));
        let mean = noise(SEED).iter().sum::<f32>() / 10_000.0;
        let square = noise(SEED).iter().map(|v| v * v).sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.05, "{mean} {square}");
    }

    #[test]
    fn psnr_of_known_pictures() {
        assert!((psnr(&[0.0; 8], &[0.1; 8]) - 20.0).abs() < 1e-5);
        assert!((psnr(&[0.0, 0.0], &[1.0, 0.0]) - 3.0103).abs() < 1e-4);
        assert_eq!(psnr(&[0.5; 8], &[0.5; 8]), f64::INFINITY);
    }

    #[test]
    fn the_photograph() {
        let photo = Photo::load().expect("it is a PNG");
        assert_eq!((photo.width, photo.height, photo.clean.len()), (451, 300, 451 * 300 * 3));
        let noisy = psnr(&photo.clean, &photo.noisy);
        // 20 log(1 / 0.08) is 21.94.
        assert!((21.9..22.5).contains(&noisy), "{noisy}");
    }
}
