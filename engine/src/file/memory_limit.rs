//! The memory limit of this process: physical memory, or the limit of its control groups.

use std::fs;
use std::path::{Path, PathBuf};

/// Mount points of control groups v2 (also beside v1), and of the memory controller of v1.
const CGROUP_V2_ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const CGROUP_V1_MEMORY_ROOT: &str = "/sys/fs/cgroup/memory";
/// Files that contain the hard and the soft memory limit of a control group (cgroups(7)).
const CGROUP_V2_LIMIT_FILES: [&str; 2] = ["memory.max", "memory.high"];
const CGROUP_V1_LIMIT_FILES: [&str; 1] = ["memory.limit_in_bytes"];

/// Returns the memory limit of this process in bytes, as currently configured.
pub(super) fn bytes_max() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = u64::from(machine.mem_unit).saturating_mul(machine.totalram as u64);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    cgroup_limits(&groups, |path| fs::read_to_string(path).ok()).fold(machine, u64::min)
}

/// Returns the memory limits for a process in these control groups (format of `/proc/PID/cgroup`).
///
/// The limits of all ancestor groups apply, too. In a container that sees only its own subtree,
/// the ancestors include the mount point itself.
fn cgroup_limits(groups: &str, read: impl Fn(&Path) -> Option<String>) -> impl Iterator<Item = u64> {
    let files = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (roots, limit_files): (&[&str], &[&str]) = match controllers {
            "" => (&CGROUP_V2_ROOTS, &CGROUP_V2_LIMIT_FILES),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (&[CGROUP_V1_MEMORY_ROOT], &CGROUP_V1_LIMIT_FILES)
            }
            _ => (&[], &[]),
        };
        let group = Path::new(group.trim_start_matches('/'));
        let folders = roots.iter().flat_map(|root| group.ancestors().map(|group| Path::new(root).join(group)));
        folders.flat_map(|folder| limit_files.iter().map(move |bound| folder.join(bound))).collect::<Vec<PathBuf>>()
    });
    // A group without a limit contains `max`.
    files.filter_map(move |file| read(&file)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_enclosing_control_groups_limit_memory() {
        type Files = &'static [(&'static str, &'static str)];
        let cases: &[(&str, Files, &[u64])] = &[
            // No groups, and groups without a limit.
            ("", &[], &[]),
            ("0::/\n", &[], &[]),
            ("0::/a\n", &[("/sys/fs/cgroup/a/memory.max", "max\n")], &[]),
            // Control groups v2.
            (
                "0::/system.slice/selvedge.service\n",
                &[
                    ("/sys/fs/cgroup/system.slice/selvedge.service/memory.max", "104857600\n"),
                    ("/sys/fs/cgroup/system.slice/selvedge.service/memory.high", "83886080\n"),
                    ("/sys/fs/cgroup/system.slice/memory.max", "73400320\n"),
                    ("/sys/fs/cgroup/other/memory.max", "1\n"),
                ],
                &[104_857_600, 83_886_080, 73_400_320],
            ),
            // A container that sees its own group as the root, whatever the group's path is.
            ("0::/\n", &[("/sys/fs/cgroup/memory.max", "52428800\n")], &[52_428_800]),
            (
                "4:memory:/docker/5f2e\n0::/docker/5f2e\n",
                &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "41943040\n")],
                &[41_943_040],
            ),
            // Control groups v1, with combined controllers and beside v2.
            (
                "9:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b:c\n0::/\n",
                &[
                    ("/sys/fs/cgroup/memory/a/b:c/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "209715200\n"),
                    ("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "2\n"),
                ],
                &[9_223_372_036_854_771_712, 209_715_200],
            ),
            ("4:memory:/\n0::/a\n", &[("/sys/fs/cgroup/unified/a/memory.max", "33554432\n")], &[33_554_432]),
            // Malformed lines and values are ignored.
            ("memory\n:::\n4:memory\n0::/a", &[("/sys/fs/cgroup/a/memory.max", "-1\n")], &[]),
        ];
        for (groups, files, expected) in cases {
            let read = |path: &Path| {
                files.iter().find(|(file, _)| Path::new(file) == path).map(|(_, content)| (*content).to_owned())
            };
            assert_eq!(cgroup_limits(groups, read).collect::<Vec<_>>(), *expected, "{groups:?}");
        }
    }

    #[test]
    fn memory_limit_is_positive() {
        assert!(bytes_max() > 0);
    }
}
