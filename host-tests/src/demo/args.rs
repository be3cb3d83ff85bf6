//! The demo's command line.

use std::path::PathBuf;

pub(super) const HELP: &str = "\
hedgerow's demo: kernels on crops of a buffer, seen by the whole buffer, on every driver

usage: demo [OPTIONS]

options:
  --driver host|vulkan   run on this driver (may be repeated); without it, on every driver that this
                         machine has
  --device SELECTOR      the Vulkan device: its index, or a part of its name; without it, what
                         HEDGEROW_VULKAN_DEVICE says, or the best there is
  --json                 one line of JSON for each driver and part, and nothing else
  --out DIR              where the pictures go; without it, target/demo when cargo built the demo here,
                         else demo-out in the current directory
  -h, --help             this text

With HEDGEROW_VALIDATION=1, Vulkan runs under the validation layer, whose messages are failures.
The exit status is 0 if every driver asked for was right, 1 if one was not, 2 for bad arguments.
";

/// A driver that the demo knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    Host,
    Vulkan,
}

impl Driver {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Vulkan => "vulkan",
        }
    }
}

/// What was asked for.
#[derive(PartialEq, Eq, Default, Debug)]
pub(super) struct Args {
    pub(super) help: bool,
    /// Empty: all there are.
    pub(super) drivers: Vec<Driver>,
    pub(super) device: Option<String>,
    pub(super) json: bool,
    pub(super) out: Option<PathBuf>,
}

impl Args {
    pub(super) fn parse(mut parser: lexopt::Parser) -> Result<Self, lexopt::Error> {
        use lexopt::prelude::*;
        let mut args = Self::default();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("help") | Short('h') => return Ok(Self { help: true, ..args }),
                Long("driver") => {
                    let driver = match parser.value()?.string()?.as_str() {
                        "host" => Driver::Host,
                        "vulkan" => Driver::Vulkan,
                        other => {
                            let known = "there are host and vulkan";
                            return Err(format!("no driver `{other}`; {known}").into());
                        }
                    };
                    if !args.drivers.contains(&driver) {
                        args.drivers.push(driver);
                    }
                }
                Long("device") => args.device = Some(parser.value()?.string()?),
                Long("json") => args.json = true,
                Long("out") => args.out = Some(parser.value()?.into()),
                other => return Err(other.unexpected()),
            }
        }
        if args.device.is_some() && args.drivers == [Driver::Host] {
            return Err("--device chooses a Vulkan device, and only host was asked for".into());
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, String> {
        Args::parse(lexopt::Parser::from_args(args)).map_err(|error| error.to_string())
    }

    #[test]
    fn good_arguments() {
        assert_eq!(parse(&[]), Ok(Args::default()));
        let args = parse(&["--driver", "vulkan", "--driver=host", "--driver", "vulkan", "--json"]);
        let expected =
            Args { drivers: vec![Driver::Vulkan, Driver::Host], json: true, ..Args::default() };
        assert_eq!(args, Ok(expected));
        let args = parse(&["--out", "pictures", "--device", "H200"]);
        let (out, device) = (Some("pictures".into()), Some("H200".to_owned()));
        assert_eq!(args, Ok(Args { out, device, ..Args::default() }));
        assert!(parse(&["--json", "-h"]).is_ok_and(|args| args.help));
    }

    #[test]
    fn bad_arguments() {
        for (args, say) in [
            (&["--driver", "metal"][..], "metal"),
            (&["--driver"], "driver"),
            (&["--frobnicate"], "frobnicate"),
            (&["pictures"], "pictures"),
            (&["--json=yes"], "json"),
            (&["--driver", "host", "--device", "0"], "--device"),
        ] {
            let error = parse(args).expect_err("refused");
            assert!(error.contains(say), "{error}");
        }
    }
}
