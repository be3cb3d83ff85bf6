//! The demo: the main job on every driver that this machine has, on a small grid and on a photograph.

mod args;
mod denoise;
mod freshness;
mod kernels;
mod picture;
mod report;
mod s0;

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hedgerow::driver::{ComputeDriver, DriverError, ErrorKind};
use hedgerow_host::Host;
use hedgerow_vulkan::Vulkan;

use args::{Args, Driver};
use picture::{Photo, psnr};
use report::Line;

/// How far two drivers may be apart: in each value from 0 to 1, and in PSNR.
const TOLERANCE: (f32, f64) = (1e-4, 0.05);

/// Runs the demo with the command line's arguments.
pub fn main() -> ExitCode {
    let args = match Args::parse(lexopt::Parser::from_env()) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {error}\n\n`demo --help` shows what there is");
            return ExitCode::from(2);
        }
    };
    if args.help {
        print!("{}", args::HELP);
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every driver asked for; whether all were right.
fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let asked = |driver| args.drivers.contains(&driver);
    // Looked for before anything runs or is written.
    let vulkan = if asked(Driver::Vulkan) || args.drivers.is_empty() {
        open_vulkan(args.device.as_deref(), asked(Driver::Vulkan) || args.device.is_some())?
    } else {
        None
    };
    let mut demo = Demo::new(args)?;
    let all = [Driver::Host, Driver::Vulkan];
    let drivers = if args.drivers.is_empty() { &all[..] } else { &args.drivers };
    for driver in drivers {
        match (driver, &vulkan) {
            (Driver::Host, _) => demo.driver(driver.name(), &Host::new(), &Vec::new)?,
            (Driver::Vulkan, Some(gpu)) => {
                demo.driver(driver.name(), gpu, &|| gpu.validation_messages())?;
            }
            (Driver::Vulkan, None) => {}
        }
    }
    demo.say(format_args!("Pictures are in {}", demo.out.display()))?;
    Ok(demo.right)
}

/// What all drivers share.
struct Demo {
    photo: Photo,
    out: PathBuf,
    json: bool,
    /// The first driver's denoised picture, which the others' must agree with.
    first: Option<(&'static str, Vec<f32>)>,
    right: bool,
}

impl Demo {
    fn new(args: &Args) -> Result<Self, Box<dyn Error>> {
        let out = args.out.clone().unwrap_or_else(default_out);
        std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
        let photo = Photo::load()?;
        photo.save(&out.join("input.png"), &photo.clean)?;
        photo.save(&out.join("noisy.png"), &photo.noisy)?;
        Ok(Self { photo, out, json: args.json, first: None, right: true })
    }

    /// Runs both parts on one driver. `complaints` are what its validation layer has said so far.
    fn driver<D: ComputeDriver>(
        &mut self,
        name: &'static str,
        gpu: &D,
        complaints: &dyn Fn() -> Vec<String>,
    ) -> Result<(), Box<dyn Error>> {
        let device = gpu.caps().name.as_str();
        self.say(format_args!("=== {name}: {device}\n"))?;
        let mut heard = 0;
        for (part, title) in [("s0", "A grid, in part"), ("denoise", "A photograph, denoised")] {
            self.say(format_args!("--- {part}: {title}\n"))?;
            let line = match part {
                "s0" => self.s0(gpu),
                _ => self.denoise(name, gpu),
            };
            let mut line = line.unwrap_or_else(|error| {
                eprintln!("error: {name}, {part}: {error}");
                Line::default()
            });
            for complaint in complaints().iter().skip(heard) {
                eprintln!("error: {name}, {part}: validation: {complaint}");
                (line.ok, heard) = (false, heard + 1);
            }
            self.right &= line.ok;
            let line = Line { driver: name.to_owned(), device: device.to_owned(), part, ..line };
            match self.json {
                true => writeln!(io::stdout(), "{}", line.json())?,
                false => writeln!(io::stdout(), "{}\n", line.text())?,
            }
        }
        Ok(())
    }

    fn s0<D: ComputeDriver>(&self, gpu: &D) -> Result<Line, Box<dyn Error>> {
        match self.json {
            true => s0::run(gpu, &mut io::sink()),
            false => s0::run(gpu, &mut io::stdout()),
        }
    }

    fn denoise<D: ComputeDriver>(
        &mut self,
        name: &'static str,
        gpu: &D,
    ) -> Result<Line, Box<dyn Error>> {
        let denoised = denoise::run(gpu, &self.photo)?;
        self.photo.save(&self.out.join(format!("denoised-{name}.png")), &denoised.planes)?;
        let freshness = format!("freshness-{name}.png");
        freshness::save(&self.out.join(&freshness), &self.photo, &denoised.moments)?;
        self.say(format_args!(
            "{freshness}: planes Y, Co, Cg from left to right; {}",
            freshness::LEGEND
        ))?;
        for (place, moment) in ["above", "below"].iter().zip(denoise::MOMENTS) {
            self.say(format_args!("  {place}: {moment}"))?;
        }
        let mut line = denoised.line(&self.photo);
        match &self.first {
            None => self.first = Some((name, denoised.planes)),
            Some((first, planes)) => {
                let apart = planes.iter().zip(&denoised.planes).map(|(a, b)| (a - b).abs());
                let apart = apart.fold(0.0, f32::max);
                let clean = &self.photo.clean;
                let psnrs = (psnr(clean, planes) - psnr(clean, &denoised.planes)).abs();
                self.say(format_args!(
                    "against {first}: at most {apart:.1e} apart, {psnrs:.4} dB"
                ))?;
                // Not a number is no agreement.
                let agree = apart <= TOLERANCE.0 && psnrs <= TOLERANCE.1;
                if !agree {
                    eprintln!("error: {name} and {first} differ by {apart:e}, {psnrs} dB");
                }
                line.ok &= agree;
            }
        }
        Ok(line)
    }

    /// Says it to people.
    fn say(&self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
        if self.json { Ok(()) } else { writeln!(io::stdout(), "{text}") }
    }
}

/// Opens Vulkan; `None` where there is none and it is not `required`.
fn open_vulkan(device: Option<&str>, required: bool) -> Result<Option<Vulkan>, Box<dyn Error>> {
    let validation = std::env::var_os("HEDGEROW_VALIDATION").is_some_and(|value| value == "1");
    match Vulkan::builder().device(device.unwrap_or("")).validation(validation).open() {
        Ok(gpu) => Ok(Some(gpu)),
        Err(error) if !required && error.kind() == ErrorKind::Unsupported => {
            eprintln!("vulkan is left out: {error}");
            Ok(None)
        }
        Err(error) => Err(format!("vulkan: {error}").into()),
    }
}

/// `demo` in cargo's target directory, where this program is in one.
fn default_out() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let target = exe.ancestors().skip(2).find(|dir| dir.join("CACHEDIR.TAG").exists());
    match target {
        Some(target) => {
            let here = std::env::current_dir().unwrap_or_default();
            target.strip_prefix(here).unwrap_or(target).join("demo")
        }
        None => Path::new("demo-out").to_owned(),
    }
}
