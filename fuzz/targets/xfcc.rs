//! Fuzz target of the header of the gateway, and the certificate in it: any bytes. The listener does not publish the
//! parser, so its file is compiled here separately.
#![no_main]

#[path = "../properties/xfcc.rs"]
mod property;
#[path = "../../src/listener/xfcc.rs"]
mod xfcc;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
