//! Refuses other systems with one sentence, before the compiler reports each system call that they lack.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of_target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let (system, width) = (of_target("OS"), of_target("POINTER_WIDTH"));
    if system != "linux" || width != "64" {
        println!(
            "cargo::error=selvedge runs on 64-bit Linux only, and this is {system} with {width} bits: build it there, in a \
             container or a virtual machine, or for the target x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu"
        );
    }
}
