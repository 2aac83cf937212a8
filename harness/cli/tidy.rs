//! The house's rules that no compiler checks. See docs/architecture.md, "Invariants".
//!
//! Needs neither cluster nor network: it reads the checkout and asks `cargo` about it.
#![expect(
    clippy::unwrap_used,
    reason = "a test target of its own: what cannot be read fails the test"
)]

#[path = "tidy/checkout.rs"]
mod checkout;
#[path = "tidy/features.rs"]
mod features;
#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/shapes.rs"]
mod shapes;
