//! Encoders of the content codings gzip, Brotli and zstd.
//!
//! A flush puts out all input so far, so a client can decode everything that was sent. Never
//! waits, and never chooses the coding.

use selvedge_proto::encoding::Coding;
use std::io::{self, Write};
use zstd::stream::raw::CParameter;

/// The trade-off between size, CPU time and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompressionLevel {
    /// For many long-lived streams: uses the least memory, at most 380 KiB each.
    EventStream,
    /// For content that is encoded for each response: smaller output, at most 1.2 MiB of memory.
    WhileSending,
    /// For content that is encoded once and sent often: the smallest output, at about 1 MB/s with
    /// Brotli and zstd.
    Best,
}

/// Window of content encoded for each response, as a power of two: 256 KiB. The client
/// allocates as much for each response.
const WINDOW_BITS: u32 = 18;
/// Window of event streams, as a power of two: 64 KiB.
const EVENT_STREAM_WINDOW_BITS: u32 = 16;
/// Window of cached content, as a power of two: 4 MiB. Clients may refuse more than 8 MiB (RFC 9659).
const BEST_WINDOW_BITS: u32 = 22;
/// One bit more than Brotli's smallest window (RFC 7932 §9.1), since some decoders refuse that.
const BROTLI_WINDOW_BITS_MIN: u32 = 11;
/// Output buffer of the Brotli encoder.
const BROTLI_BUFFER_BYTES: usize = 4096;

/// An encoder for one of the codings.
pub(crate) enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Creates an encoder. If `length` is given, the content must have exactly this length.
    ///
    /// # Errors
    /// If memory allocation fails.
    pub(crate) fn new(coding: Coding, level: CompressionLevel, length: Option<u64>) -> io::Result<Self> {
        let window_bits = match level {
            CompressionLevel::EventStream => EVENT_STREAM_WINDOW_BITS,
            CompressionLevel::WhileSending => WINDOW_BITS,
            CompressionLevel::Best => BEST_WINDOW_BITS,
        };
        Ok(match coding {
            Coding::Gzip => {
                let gzip_level = match level {
                    CompressionLevel::EventStream => 2,
                    CompressionLevel::WhileSending => 4,
                    CompressionLevel::Best => 9,
                };
                Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(gzip_level)))
            }
            Coding::Brotli => {
                let bits_of_length = length.map_or(u64::BITS, |length| u64::BITS - length.leading_zeros());
                let params = brotli::enc::BrotliEncoderParams {
                    quality: match level {
                        CompressionLevel::EventStream => 2,
                        CompressionLevel::WhileSending => 3,
                        CompressionLevel::Best => 11,
                    },
                    lgwin: bits_of_length.clamp(BROTLI_WINDOW_BITS_MIN, window_bits) as i32,
                    size_hint: length.unwrap_or(0) as usize,
                    ..Default::default()
                };
                Self::Brotli(Box::new(brotli::CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &params)))
            }
            Coding::Zstd => {
                let zstd_level = match level {
                    CompressionLevel::EventStream => 1,
                    CompressionLevel::WhileSending => 3,
                    CompressionLevel::Best => 19,
                };
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), zstd_level)?;
                encoder.window_log(window_bits)?;
                match level {
                    CompressionLevel::EventStream => encoder.set_parameter(CParameter::HashLog(14))?,
                    CompressionLevel::WhileSending => encoder.set_parameter(CParameter::HashLog(16))?,
                    CompressionLevel::Best => {}
                }
                encoder.set_pledged_src_size(length)?;
                Self::Zstd(encoder)
            }
        })
    }

    /// Encodes content.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Brotli(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Flushes all input so far to the output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }

    /// Returns the size of the output in bytes.
    pub(crate) fn output_bytes(&self) -> usize {
        match self {
            Self::Gzip(encoder) => encoder.get_ref().len(),
            Self::Brotli(encoder) => encoder.get_ref().len(),
            Self::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    /// Takes the output.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the content and returns the remaining output.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Read;

    /// Decodes encoded content that may be incomplete.
    pub(crate) fn decode_partial(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut decoder: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(coded)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(coded, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(coded).unwrap()),
        };
        let mut content = Vec::new();
        let mut byte = [0; 1];
        // For the decoder, the end of incomplete content is an error.
        while let Ok(1) = decoder.read(&mut byte) {
            content.push(byte[0]);
        }
        content
    }

    /// Decodes complete encoded content.
    pub(crate) fn decode(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut content),
            Coding::Brotli => brotli::Decompressor::new(coded, 4096).read_to_end(&mut content),
            Coding::Zstd => zstd::stream::read::Decoder::new(coded).unwrap().read_to_end(&mut content),
        }
        .expect("the content is complete");
        content
    }

    #[test]
    fn flushed_output_can_be_decoded_before_the_end() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding, CompressionLevel::EventStream, None).unwrap();
            let mut coded = Vec::new();
            for event in ["one", "two", ""] {
                encoder.write(event.as_bytes()).unwrap();
                encoder.flush().unwrap();
                coded.extend(encoder.take_output());
                assert!(decode_partial(coding, &coded).ends_with(event.as_bytes()), "{coding:?} {event}");
            }
            coded.extend(encoder.finish().unwrap());
            assert_eq!(decode(coding, &coded), b"onetwo");
        }
    }

    #[test]
    fn decoded_content_equals_input_for_any_length() {
        for coding in Coding::ALL {
            for level in [CompressionLevel::EventStream, CompressionLevel::WhileSending, CompressionLevel::Best] {
                for length in [0_u64, 1, 1023, 1024, 1025, 300_000] {
                    let content: Vec<u8> = (0..length).map(|at| (at * at / 7) as u8).collect();
                    for known in [None, Some(length)] {
                        let mut encoder = Encoder::new(coding, level, known).unwrap();
                        encoder.write(&content).unwrap();
                        let coded = encoder.finish().unwrap();
                        assert_eq!(decode(coding, &coded), content, "{coding:?} {level:?} {length}");
                    }
                }
            }
        }
    }
}
