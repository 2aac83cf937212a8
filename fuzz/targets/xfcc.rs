//! The gateway's header, and the certificate in it: any bytes. The listener publishes neither, so their files are
//! compiled here by themselves.
#![no_main]
#![expect(dead_code, reason = "the listener uses more of these files")]

#[path = "../../src/listener/forwarded.rs"]
mod forwarded;
#[path = "../properties/xfcc.rs"]
mod property;
#[path = "../../src/listener/xfcc.rs"]
mod xfcc;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
