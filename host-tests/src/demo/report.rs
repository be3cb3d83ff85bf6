//! What the demo says of one driver and part: a line of JSON, or a few of text.

use std::fmt::Write;

/// The result of one part on one driver. What does not apply, or was not reached, is `None`.
#[derive(Clone, Default, Debug)]
pub(super) struct Line {
    pub(super) driver: String,
    pub(super) device: String,
    pub(super) part: &'static str,
    pub(super) ok: bool,
    pub(super) bytes_up: Option<u64>,
    pub(super) bytes_down: Option<u64>,
    /// What a library moves that tracks one state for a whole buffer: the root's bytes times its transfers.
    pub(super) bytes_whole_buffer: Option<u64>,
    pub(super) psnr_noisy: Option<f64>,
    pub(super) psnr_denoised: Option<f64>,
}

impl Line {
    /// All keys, always in this order.
    pub(super) fn json(&self) -> String {
        let bytes = |n: Option<u64>| n.map_or_else(|| "null".to_owned(), |n| n.to_string());
        let psnr = |p: Option<f64>| match p {
            Some(p) if p.is_finite() => format!("{p:.3}"),
            _ => "null".to_owned(),
        };
        format!(
            "{{\"driver\":{},\"device\":{},\"part\":{},\"ok\":{},\"bytes_up\":{},\
             \"bytes_down\":{},\"bytes_whole_buffer\":{},\"psnr_noisy\":{},\"psnr_denoised\":{}}}",
            quoted(&self.driver),
            quoted(&self.device),
            quoted(self.part),
            self.ok,
            bytes(self.bytes_up),
            bytes(self.bytes_down),
            bytes(self.bytes_whole_buffer),
            psnr(self.psnr_noisy),
            psnr(self.psnr_denoised),
        )
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let (Some(noisy), Some(denoised)) = (self.psnr_noisy, self.psnr_denoised) {
            let better = denoised - noisy;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "PSNR {noisy:.2} dB noisy, {denoised:.2} dB denoised: {better:+.2} dB"
            );
        }
        if let (Some(up), Some(down), Some(whole)) =
            (self.bytes_up, self.bytes_down, self.bytes_whole_buffer)
        {
            let _ = writeln!(
                text,
                "moved {up} bytes up and {down} down; copies of whole buffers would have moved {whole}"
            );
        }
        let _ = write!(text, "{}: {}", self.part, if self.ok { "right" } else { "WRONG" });
        text
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("plain é"), "\"plain é\"");
        assert_eq!(quoted("a\"b\\c\nd\re\tf\u{1}"), "\"a\\\"b\\\\c\\nd\\re\\tf\\u0001\"");
    }

    #[test]
    fn all_keys_are_there() {
        let line = Line {
            driver: "vulkan".to_owned(),
            device: "the \"GPU\"".to_owned(),
            part: "s0",
            ok: true,
            bytes_up: Some(0),
            bytes_down: Some(160),
            psnr_noisy: Some(f64::INFINITY),
            psnr_denoised: Some(27.12345),
            ..Line::default()
        };
        assert_eq!(
            line.json(),
            "{\"driver\":\"vulkan\",\"device\":\"the \\\"GPU\\\"\",\"part\":\"s0\",\"ok\":true,\
             \"bytes_up\":0,\"bytes_down\":160,\"bytes_whole_buffer\":null,\"psnr_noisy\":null,\
             \"psnr_denoised\":27.123}"
        );
    }
}
