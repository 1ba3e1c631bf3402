//! How long the phases of a request took: one record, which logs, metrics and the flight recorder share.

use std::time::Duration;

/// A phase of a request, from the accepted connection to the last byte of the response. A phase that needed no wait is
/// not measured, and has no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// From the accepted connection to the first byte of its first request, without the TLS handshake. It includes the
    /// time that the client waited before it sent anything.
    Accept,
    /// The TLS handshake; of the first request of a connection.
    Handshake,
    /// From the first to the last byte of a head that arrived in several parts (HTTP/1).
    Head,
    /// From the complete head to the end of the request's content, as far as the application has read it.
    Content,
    /// From the complete head until the application returned a response.
    Application,
    /// The wait for a place at an upstream, in all tries.
    Queue,
    /// Opening a connection to an upstream, TLS included; of the last try.
    Connect,
    /// From the open connection to the head of the upstream's response, or to its failure; of the last try.
    FirstByte,
    /// From the response of the application until the system has accepted its last byte.
    Send,
}

impl RequestPhase {
    /// All phases, in the order in which a request passes through them.
    pub const ALL: [Self; 9] = [
        Self::Accept,
        Self::Handshake,
        Self::Head,
        Self::Content,
        Self::Application,
        Self::Queue,
        Self::Connect,
        Self::FirstByte,
        Self::Send,
    ];

    /// Returns the name of the phase: a word in lower case with underscores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Handshake => "handshake",
            Self::Head => "head",
            Self::Content => "content",
            Self::Application => "application",
            Self::Queue => "queue",
            Self::Connect => "connect",
            Self::FirstByte => "first_byte",
            Self::Send => "send",
        }
    }
}

/// The time of each phase of a request, in microseconds, at most 71 minutes. Phases overlap: [`RequestPhase::Application`]
/// includes those of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes([u32; RequestPhase::ALL.len()]);

impl PhaseTimes {
    /// Sets the time of a phase.
    pub fn set(&mut self, phase: RequestPhase, time: Duration) {
        self.0[phase as usize] = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    }

    /// Returns the time of a phase in microseconds; 0 if it was not measured or was shorter than one.
    pub const fn micros(&self, phase: RequestPhase) -> u32 {
        self.0[phase as usize]
    }

    /// Returns the time of a phase; `None` if it was not measured or was shorter than a microsecond.
    pub fn get(&self, phase: RequestPhase) -> Option<Duration> {
        match self.micros(phase) {
            0 => None,
            micros => Some(Duration::from_micros(micros.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_own_time_and_long_ones_are_bounded() {
        let mut times = PhaseTimes::default();
        for (number, phase) in RequestPhase::ALL.into_iter().enumerate() {
            assert_eq!((phase as usize, times.get(phase)), (number, None));
            times.set(phase, Duration::from_micros(number as u64 + 1));
        }
        for (number, phase) in RequestPhase::ALL.into_iter().enumerate() {
            assert_eq!(times.get(phase), Some(Duration::from_micros(number as u64 + 1)), "{}", phase.name());
        }
        times.set(RequestPhase::Send, Duration::from_secs(1 << 40));
        assert_eq!(times.micros(RequestPhase::Send), u32::MAX);
    }
}
