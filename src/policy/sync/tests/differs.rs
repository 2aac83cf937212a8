use rstest::rstest;
use serde_json::{Value, json};

use crate::sync::diff::{differing_fields, is_applied};

#[rstest]
#[case::same(json!({"data": {"a": "1"}}), json!({"data": {"a": "1"}}), true)]
#[case::defaults(json!({"spec": {"a": 1}}), json!({"spec": {"a": 1, "clusterIP": "10.0.0.1"}, "status": {}}), true)]
#[case::changed(json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}}), false)]
#[case::gone(json!({"data": {"a": "1"}}), json!({"data": {}}), false)]
#[case::nothing_there(json!({"data": {"a": "1"}}), json!({}), false)]
#[case::empty_is_dropped(json!({"spec": {"a": {}, "b": [], "c": null}}), json!({"spec": {}}), true)]
#[case::null_means_absent(json!({"spec": {"c": null}}), json!({"spec": {"c": 1}}), false)]
#[case::another_served_version(json!({"apiVersion": "x/v1", "kind": "X"}), json!({"apiVersion": "x/v1beta1"}), true)]
#[case::kinds_below_count(json!({"roleRef": {"kind": "Role"}}), json!({"roleRef": {"kind": "ClusterRole"}}), false)]
#[case::containers_by_name(
    json!({"containers": [{"name": "b", "image": "i"}]}),
    json!({"containers": [{"name": "a"}, {"name": "b", "image": "i", "tty": false}]}), true)]
#[case::container_missing(json!({"containers": [{"name": "b"}]}), json!({"containers": [{"name": "a"}]}), false)]
#[case::one_subject_more(
    json!({"subjects": [{"name": "a"}]}), json!({"subjects": [{"name": "a"}, {"name": "intruder"}]}), false)]
#[case::one_rule_more(
    json!({"rules": [{"verbs": ["get"]}]}), json!({"rules": [{"verbs": ["get"]}, {"verbs": ["*"]}]}), false)]
#[case::one_verb_more(json!({"rules": [{"verbs": ["get"]}]}), json!({"rules": [{"verbs": ["get", "list"]}]}), false)]
#[case::defaults_in_a_rule(
    json!({"rules": [{"operations": ["CREATE"]}]}), json!({"rules": [{"operations": ["CREATE"], "scope": "*"}]}), true)]
#[case::ports_with_names(
    json!({"ports": [{"name": "b", "port": 2}]}), json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}), true)]
#[case::ports_without_names(
    json!({"ports": [{"port": 443}, {"port": 6443}]}), json!({"ports": [{"port": 443}, {"port": 80}]}), false)]
#[case::not_paused(json!({"spec": {"paused": false}}), json!({"spec": {}}), true)]
#[case::paused(json!({"spec": {"paused": false}}), json!({"spec": {"paused": true}}), false)]
#[case::no_global_default(json!({"globalDefault": false}), json!({"value": 1}), true)]
#[case::false_is_a_value(json!({"spec": {"enableServiceLinks": false}}), json!({"spec": {}}), false)]
#[case::a_selector_for_all(json!({"webhooks": [{"name": "w", "objectSelector": {}}]}), json!({"webhooks": [{"name": "w", "objectSelector": {}}]}), true)]
#[case::a_selector_for_fewer(
    json!({"webhooks": [{"name": "w", "objectSelector": {}}]}),
    json!({"webhooks": [{"name": "w", "objectSelector": {"matchLabels": {"a": "b"}}}]}), false)]
#[case::a_selector_with_one_label_more(
    json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}),
    json!({"namespaceSelector": {"matchLabels": {"a": "b", "c": "d"}}}), false)]
#[case::a_condition_of_another_writer(
    json!({"webhooks": [{"name": "w"}]}),
    json!({"webhooks": [{"name": "w", "matchConditions": [{"name": "c", "expression": "false"}]}]}), false)]
#[case::one_condition_more(
    json!({"webhooks": [{"name": "w", "matchConditions": [{"name": "a", "expression": "true"}]}]}),
    json!({"webhooks": [{"name": "w", "matchConditions": [{"name": "b"}, {"name": "a", "expression": "true"}]}]}), false)]
#[case::conditions_of_another_webhook(
    json!({"webhooks": [{"name": "w"}]}),
    json!({"webhooks": [{"name": "other", "matchConditions": [{"name": "b"}]}, {"name": "w"}]}), true)]
#[case::a_policy_with_defaults(
    json!({"egress": [{"to": [{"podSelector": {}}], "ports": [{"port": 53}]}]}),
    json!({"egress": [{"to": [{"podSelector": {}}], "ports": [{"port": 53, "protocol": "TCP"}]}]}), true)]
#[case::a_policy_for_fewer_destinations(
    json!({"egress": [{"ports": [{"port": 53}]}]}),
    json!({"egress": [{"ports": [{"port": 53}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}), false)]
#[case::a_policy_for_fewer_ports(
    json!({"ingress": [{"from": [{"podSelector": {}}]}]}),
    json!({"ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 1}]}]}), false)]
#[case::a_policy_for_fewer_sources(
    json!({"ingress": [{"from": [{"namespaceSelector": {}}]}]}),
    json!({"ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {}}]}]}), false)]
#[case::a_policy_for_fewer_addresses(
    json!({"ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}),
    json!({"ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}]}), false)]
#[case::a_rule_for_fewer_objects(
    json!({"rules": [{"verbs": ["get"]}]}), json!({"rules": [{"verbs": ["get"], "resourceNames": ["a"]}]}), false)]
#[case::a_rule_for_fewer_scopes(
    json!({"rules": [{"operations": ["CREATE"]}]}), json!({"rules": [{"operations": ["CREATE"], "scope": "Cluster"}]}), false)]
#[case::ca_bundle_of_another_writer(
    json!({"webhooks": [{"name": "w", "clientConfig": {"service": {"name": "s"}}}]}),
    json!({"webhooks": [{"name": "w", "clientConfig": {"caBundle": "x", "service": {"name": "s", "port": 443}}}]}), true)]
fn differences(#[case] desired: Value, #[case] live: Value, #[case] same: bool) {
    assert_eq!(is_applied(&desired, &live), same);
    assert_eq!(differing_fields(&desired, &live).is_empty(), same);
}

#[test]
fn differing_fields_are_named_without_their_values() {
    let annotation = "rt-bootstrapper.kyma-project.io/content-hash";
    let desired = json!({
        "metadata": {"name": "a", "annotations": {annotation: "new"}},
        "data": {".dockerconfigjson": "c2VjcmV0", "same": "1"},
        "spec": {
            "containers": [{"name": "manager", "image": "b"}, {"name": "other"}],
            "rules": [{"verbs": ["get"]}],
            "objectSelector": {"matchLabels": {"a": "b"}},
        },
    });
    let live = json!({
        "metadata": {"name": "a", "annotations": {annotation: "old"}},
        "data": {".dockerconfigjson": "b2xk", "same": "1"},
        "spec": {"containers": [{"name": "manager", "image": "a"}], "rules": [], "objectSelector": {}},
    });
    let mut paths = differing_fields(&desired, &live);
    paths.sort_unstable();
    let expected = [
        "data[\".dockerconfigjson\"]",
        "metadata.annotations[\"rt-bootstrapper.kyma-project.io/content-hash\"]",
        "spec.containers[manager].image",
        "spec.containers[other]",
        "spec.objectSelector",
        "spec.rules",
    ];
    assert_eq!(paths, expected);
}
