//! Bounds how many requests are repeated, so that repetitions do not overload servers that are failing.

/// Requests that may be repeated at once whatever the load is. With 20 requests at work at two servers, the end of one server
/// lets 10 of them fail at once.
const RETRIES_MIN: u32 = 10;
/// Share of the requests at work that may be repetitions, in percent.
const RETRIES_PERCENT_MAX: u32 = 20;

/// Returns whether one more of the `at_work` requests of a group may be a repetition.
pub(super) fn allows(retrying: u32, at_work: u32) -> bool {
    let allowed = u64::from(at_work) * u64::from(RETRIES_PERCENT_MAX) / 100;
    u64::from(retrying) < allowed.max(u64::from(RETRIES_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_a_share_of_requests_at_work() {
        for (at_work, expected) in [(0, 10), (20, 10), (50, 10), (55, 11), (100, 20), (1000, 200)] {
            let allowed = (0..1000).take_while(|&retrying| allows(retrying, at_work)).count();
            assert_eq!(allowed, expected, "{at_work}");
        }
        assert!(allows(858_993_458, u32::MAX) && !allows(858_993_459, u32::MAX));
    }
}
