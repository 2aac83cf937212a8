//! Build script that sets the link arguments of the released binary.
//!
//! A static, position-independent binary contains a relocation for each pointer in its tables, and these programs have many
//! tables. Packed relocations take a fiftieth of the size. Identical functions are merged, which requires lld, the default
//! linker on x86-64.

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
