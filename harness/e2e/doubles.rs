//! Systems of other teams, as far as ours can see them.
//!
//! A double does what the public source of the real system does, at the places where the product meets it, and nothing
//! more; what it was made to do is counted, so that "it did nothing" can be shown.

pub mod kim;
