//! The content that workloads request. The table lists it for each server.

use crate::figures::{Figure, Ratio};
use crate::names::{AXUM, BASELINE, SELVEDGE};

/// The content that a workload requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentKind {
    /// One file that servers may keep in memory.
    File,
    /// One file that is too long for that.
    LongFile,
    /// Files below the root, some of them cold.
    Tree,
    /// A response of a program.
    Hello,
    /// The response of [`Self::Hello`], from a program on a Rust library.
    Library,
    /// The responses of an application on a Rust library.
    Application,
    /// The smallest file, over HTTP/2 without TLS.
    SmallFileOverHttp2,
    /// The smallest file, over TLS with HTTP/2 and HTTP/1.1.
    SmallFileOverTls,
    /// Files of any size, over HTTP/2 without TLS.
    FilesOverHttp2,
    /// Files of any size, over TLS with HTTP/2 and HTTP/1.1.
    FilesOverTls,
    /// One file of an upstream, through the server as a proxy.
    Proxied,
}

impl ContentKind {
    /// Returns the ratios of the tables with this content.
    pub(crate) fn ratios(self) -> &'static [Ratio] {
        match self {
            Self::File | Self::LongFile | Self::Tree | Self::Hello => &[
                Ratio { figure: Figure::CpuUs, relative_to: BASELINE, result: Figure::CpuToBaseline },
                Ratio { figure: Figure::CpuUs, relative_to: SELVEDGE, result: Figure::CpuToSelvedge },
            ],
            Self::Library | Self::Application => &[
                Ratio { figure: Figure::CpuUs, relative_to: AXUM, result: Figure::CpuToAxum },
                Ratio { figure: Figure::BytesPerConnection, relative_to: AXUM, result: Figure::BytesToAxum },
            ],
            Self::SmallFileOverHttp2
            | Self::SmallFileOverTls
            | Self::FilesOverHttp2
            | Self::FilesOverTls
            | Self::Proxied => &[Ratio { figure: Figure::CpuUs, relative_to: SELVEDGE, result: Figure::CpuToSelvedge }],
        }
    }

    /// Whether servers are started with HTTP/2 and TLS for this content.
    pub(super) fn needs_http2_or_tls(self) -> bool {
        matches!(self, Self::SmallFileOverHttp2 | Self::SmallFileOverTls | Self::FilesOverHttp2 | Self::FilesOverTls)
    }
}
