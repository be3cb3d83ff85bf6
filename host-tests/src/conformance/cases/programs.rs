//! Random programs, the same ones every time: any views, any order, any layout.

use std::cell::Cell;

use hedgerow::capacity::Capacity;
use hedgerow::driver::ErrorKind;
use hedgerow::region::MAX_RANK;

use super::super::lab::{Bed, Hardware, Lab, Pair, Patch, Plot, Skip, Value};

super::cases! {
    both:
        programs_of_rank_one,
        programs_of_rank_two,
        programs_of_rank_three,
        programs_of_the_highest_rank,
        programs_in_padded_and_flipped_roots,
        programs_on_bytes,
        programs_on_three_byte_elements,
        programs_with_failures,
        programs_with_a_loss,
        programs_on_two_devices,
}

/// A small generator, so that a failure repeats.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % u64::from(n)) as u32
    }

    /// A crop of a view, seldom empty.
    fn crop<'t, T: Value, H: Hardware>(&mut self, of: &Patch<'t, T, H>) -> Patch<'t, T, H> {
        let ranges: Vec<_> = of
            .spot
            .min
            .iter()
            .zip(&of.spot.extent)
            .map(|(min, n)| {
                let n = *n as u32;
                let lo = self.below(n + 1).min(n.saturating_sub(1));
                let len = self.below(n - lo + 1).max(u32::from(self.below(20) > 0).min(n - lo));
                min + lo as i32..min + (lo + len) as i32
            })
            .collect();
        of.crop_to(&ranges)
    }

    /// Any view, up to three levels below.
    fn view<'t, T: Value, H: Hardware>(
        &mut self,
        root: &Patch<'t, T, H>,
        gappy: bool,
    ) -> Patch<'t, T, H> {
        let mut view = self.crop(root);
        for _ in 0..self.below(3) {
            let rank = view.spot.rank() as u32;
            if rank == 0 {
                break;
            }
            let axis = self.below(rank) as usize;
            let n = view.spot.extent[axis];
            view = match self.below(7) {
                0 if n > 0 => view.slice(axis, view.spot.min[axis] + self.below(n as u32) as i32),
                1 => view.flip(axis),
                2 if gappy => view.step_by(axis, 1 + self.below(3) as i32),
                3 if rank == 2 => view.permute([1, 0]),
                4 if rank == 3 => view.permute([2, 0, 1]),
                5 if rank == 2 => view.translate([self.below(9) as i32 - 4, 3]),
                _ => self.crop(&view),
            };
        }
        view
    }

    fn step<T: Value, H: Hardware, C: Capacity>(
        &mut self,
        bed: &Bed<'_, '_, T, H, C>,
        gappy: bool,
    ) {
        let view = self.view(&bed.root(), gappy);
        let p = self.below(9) as i32;
        match self.below(9) {
            0 | 1 => bed.read(&view),
            2 => bed.write(&view, p),
            3 => bed.update(&view, p),
            4 | 5 => bed.fill(&view, p),
            6 | 7 => bed.add(&view, p),
            _ => bed.bring(&view),
        }
        if self.below(12) == 0 {
            bed.read(&bed.root());
        }
        assert_eq!(bed.tree.check(), Ok(()));
    }
}

fn run<T: Value, H: Hardware, C: Capacity>(
    lab: &Lab<'_, H, C>,
    plot: &Plot,
    seeds: u64,
    steps: u32,
) {
    for seed in 1..=seeds {
        lab.run::<T>(plot, |bed| {
            let mut rng = Rng::new(seed);
            // Some programs start on roots that nobody has written, as far as the storage goes.
            if seed % 3 != 0 {
                super::start(bed);
            }
            for _ in 0..steps {
                rng.step(bed, seed % 2 == 0);
            }
        });
    }
}

fn programs_of_rank_one<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    run::<i32, H, C>(lab, &Plot::packed(&[97]), 12, 40);
}

fn programs_of_rank_two<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    run::<i32, H, C>(lab, &Plot::packed(&[19, 15]).min(&[-5, 3]), 16, 40);
}

fn programs_of_rank_three<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    run::<i32, H, C>(lab, &Plot::packed(&[8, 7, 6]), 10, 30);
    run::<f32, H, C>(lab, &Plot::ordered(&[8, 7, 3], &[2, 0, 1]), 6, 30);
}

fn programs_of_the_highest_rank<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let extent: Vec<u32> = (0..MAX_RANK as u32).map(|axis| if axis < 3 { 5 } else { 3 }).collect();
    run::<i32, H, C>(lab, &Plot::packed(&extent), 8, 24);
}

fn programs_in_padded_and_flipped_roots<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for strides in [[1, 23], [-1, 17], [21, -1], [-2, -40]] {
        run::<i32, H, C>(lab, &Plot::strided(&[17, 13], &strides).min(&[2, -9]), 4, 30);
    }
}

fn programs_on_bytes<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    run::<u8, H, C>(lab, &Plot::packed(&[19, 15]), 8, 40);
    run::<u8, H, C>(lab, &Plot::ordered(&[9, 8, 3], &[2, 0, 1]), 4, 30);
    run::<u16, H, C>(lab, &Plot::strided(&[11, 9], &[1, 13]), 4, 30);
}

fn programs_on_three_byte_elements<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    run::<[u8; 3], H, C>(lab, &Plot::packed(&[13, 11]), 6, 40);
    run::<[u8; 12], H, C>(lab, &Plot::packed(&[7, 6]), 3, 30);
}

fn programs_with_failures<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    let plot = Plot::packed(&[13, 11]);
    run::<i32, H, C>(lab, &plot, 1, 4);
    for seed in 1..=10 {
        let rigs = lab.rigs();
        let rig = rigs[seed as usize / 2 % rigs.len()];
        lab.run::<i32>(&plot, |bed| {
            // Loaded before anything fails.
            bed.kernel(i32::FILL);
            bed.kernel(i32::ADD);
            let kind = if seed % 2 == 0 { ErrorKind::Timeout } else { ErrorKind::OutOfMemory };
            let mut rng = Rng::new(seed);
            super::start(bed);
            bed.retry(kind);
            for _ in 0..25 {
                rig.inner().arm_partial(1 + rng.below(3), kind);
                rng.step(bed, true);
            }
            rig.inner().disarm();
        });
    }
}

fn programs_with_a_loss<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) {
    for seed in 1..=12 {
        let met = Cell::new(false);
        let rigs = lab.rigs();
        let rig = rigs[seed as usize % rigs.len()];
        lab.run::<i32>(&Plot::packed(&[13, 11]), |bed| {
            bed.kernel(i32::FILL);
            bed.kernel(i32::ADD);
            let mut rng = Rng::new(seed);
            super::start(bed);
            bed.expect_loss();
            let call = (5 + 2 * seed as u32) / rigs.len() as u32;
            rig.inner().arm_partial(call, ErrorKind::DeviceLost);
            for _ in 0..40 {
                rng.step(bed, seed % 2 == 0);
            }
            rig.inner().disarm();
            met.set(bed.met_loss());
            if met.get() {
                bed.take_lost();
            }
        });
        rig.inner().revive();
        assert!(met.get() || lab.is_shared(), "seed {seed}: nothing was lost");
    }
}

fn programs_on_two_devices<H: Hardware, C: Capacity>(lab: &Lab<'_, H, C>) -> Result<(), Skip> {
    let second = lab.second()?;
    for seed in 1..=10 {
        lab.run_on::<i32, Pair>(&[&lab.rig, &second], &Plot::packed(&[15, 12]), |bed| {
            let mut rng = Rng::new(seed);
            super::start(bed);
            for _ in 0..30 {
                let view = rng.view(&bed.root(), false);
                let (device, p) = (rng.below(2) as usize, rng.below(9) as i32);
                match rng.below(6) {
                    0 => bed.read(&view),
                    1 => bed.update(&view, p),
                    2 | 3 => bed.fill_on(device, &view, p),
                    _ => bed.add_on(device, &view, p),
                }
                assert_eq!(bed.tree.check(), Ok(()));
            }
        });
        assert_eq!(second.snapshot().live(), 0);
    }
    Ok(())
}
