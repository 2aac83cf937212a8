//! How the released binary is linked.
//!
//! A static, position-independent binary carries a relocation for each pointer in its tables, and these processes have
//! many tables: packed they take a fiftieth. Functions that came out the same are kept once; that is lld's to do, which
//! is what links on x86-64.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, wanted: &str| var(name).is_ok_and(|value| value == wanted);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        if is("CARGO_CFG_TARGET_ARCH", "x86_64") {
            println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        }
    }
}
