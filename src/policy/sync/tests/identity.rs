use rstest::rstest;
use serde_json::{Value, json};

use crate::sync::Salt;
use crate::sync::identity::{IdentityError, IdentityRecord, Owner, verify_identity};

fn owner() -> Owner {
    Owner {
        runtime_id: "mine".to_owned(),
        control_plane: "cp".to_owned(),
    }
}

fn marker(runtime: &str, control_plane: &str) -> Value {
    json!({ "data": { "runtimeID": runtime, "controlPlaneID": control_plane } })
}

fn claim<'a>(
    remembered: Option<&'a str>,
    accepted: Option<&'a str>,
    by: Option<&'a str>,
) -> IdentityRecord<'a> {
    IdentityRecord {
        recorded_uid: remembered,
        accepted_uid: accepted,
        claimed_by: by,
    }
}

#[rstest]
#[case::first_contact(claim(None, None, None), Some("u1"), None, "")]
#[case::as_before(
    claim(Some("u1"), None, None),
    Some("u1"),
    Some(marker("mine", "cp")),
    ""
)]
#[case::marker_gone(claim(Some("u1"), None, None), Some("u1"), None, "")]
#[case::unidentified(claim(None, None, None), None, None, "unidentified")]
#[case::empty(claim(None, None, None), Some(""), None, "unidentified")]
#[case::rebuilt(claim(Some("u0"), None, None), Some("u1"), None, "rebuilt")]
#[case::rebuilt_accepted(claim(Some("u0"), Some("u1"), None), Some("u1"), None, "")]
#[case::another_one_accepted(claim(Some("u0"), Some("u2"), None), Some("u1"), None, "rebuilt")]
#[case::acceptance_is_for_one_uid_only(
    claim(Some("u0"), Some("true"), None),
    Some("u1"),
    None,
    "rebuilt"
)]
#[case::claimed(claim(None, None, Some("other")), Some("u1"), None, "claimed")]
#[case::claimed_by_itself(claim(Some("u1"), None, Some("mine")), Some("u1"), None, "")]
#[case::claimed_beats_acceptance(
    claim(Some("u0"), Some("u1"), Some("other")),
    Some("u1"),
    None,
    "claimed"
)]
#[case::foreign_runtime(
    claim(None, None, None),
    Some("u1"),
    Some(marker("other", "cp")),
    "foreign"
)]
#[case::foreign_control_plane(
    claim(Some("u1"), None, None),
    Some("u1"),
    Some(marker("mine", "other")),
    "control plane"
)]
#[case::foreign_beats_acceptance(
    claim(Some("u0"), Some("u1"), None),
    Some("u1"),
    Some(marker("other", "cp")),
    "foreign"
)]
#[case::restored_control_plane(
    claim(Some("u1"), Some("u1"), None),
    Some("u1"),
    Some(marker("mine", "other")),
    ""
)]
#[case::restored_control_plane_that_remembers_nothing(
    claim(None, Some("u1"), None),
    Some("u1"),
    Some(marker("mine", "other")),
    ""
)]
#[case::another_cluster_accepted(
    claim(Some("u1"), Some("u2"), None),
    Some("u1"),
    Some(marker("mine", "other")),
    "control plane"
)]
#[case::acceptance_covers_no_other_runtime(
    claim(Some("u1"), Some("u1"), None),
    Some("u1"),
    Some(marker("other", "other")),
    "foreign"
)]
#[case::acceptance_covers_no_empty_marker(
    claim(Some("u1"), Some("u1"), None),
    Some("u1"),
    Some(json!({})),
    "foreign"
)]
#[case::kcp(claim(None, None, None), Some("kcp"), None, "kcp")]
#[case::kcp_that_was_accepted(claim(None, Some("kcp"), None), Some("kcp"), None, "kcp")]
#[case::kcp_with_a_marker(
    claim(Some("kcp"), None, None),
    Some("kcp"),
    Some(marker("mine", "cp")),
    "kcp"
)]
#[case::unreadable_marker(claim(None, None, None), Some("u1"), Some(json!({})), "foreign")]
fn guards(
    #[case] claim: IdentityRecord<'_>,
    #[case] observed: Option<&str>,
    #[case] marker: Option<Value>,
    #[case] refusal: &str,
) {
    let mut owner = owner();
    if observed == Some("kcp") {
        owner.control_plane = Salt::new("kcp").control_plane();
    }
    let found = match verify_identity(&owner, claim, observed, marker.as_ref()) {
        Ok(uid) => {
            assert_eq!(Some(uid), observed);
            ""
        }
        Err(IdentityError::ClusterUIDUnknown) => "unidentified",
        Err(IdentityError::ClusterIsKCP) => "kcp",
        Err(IdentityError::ClusterAlreadyManaged { .. }) => "claimed",
        Err(IdentityError::OwnershipConflict { .. }) => "foreign",
        Err(IdentityError::OtherKCP { .. }) => "control plane",
        Err(IdentityError::ClusterUIDChanged { .. }) => "rebuilt",
    };
    assert_eq!(found, refusal);
}
