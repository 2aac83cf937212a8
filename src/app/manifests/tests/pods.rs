//! Requirements that apply to the Pods of all components.

use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Returns the only container of a Pod.
pub(super) fn container(pod: PodSpec) -> Container {
    let [container] = pod.containers.try_into().unwrap();
    container
}

/// Checks the Pod Security Standards, profile "restricted", field by field.
pub(super) fn assert_restricted(pod: PodSpec) {
    assert_eq!(
        (pod.host_network, pod.host_pid, pod.host_ipc),
        (None, None, None)
    );
    let context = pod.security_context.clone().unwrap();
    assert_eq!(context.run_as_non_root, Some(true));
    assert_eq!(context.run_as_user, Some(65532));
    assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
    assert_eq!(context.sysctls, None);
    let context = container(pod).security_context.unwrap();
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.privileged, None);
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let capabilities = context.capabilities.unwrap();
    assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
    assert_eq!(capabilities.add, None);
}

/// Checks that the three probes use the health port, each with its path.
pub(super) fn assert_probes(container: Container) {
    let asked = |probe: Option<Probe>| {
        let asked = probe.unwrap().http_get.unwrap();
        assert_eq!(asked.port, IntOrString::String("health".into()));
        asked.path.unwrap()
    };
    assert_eq!(asked(container.startup_probe), "/healthz");
    assert_eq!(asked(container.readiness_probe), "/readyz");
    assert_eq!(asked(container.liveness_probe), "/healthz");
}

/// Checks that a Deployment specifies the command, so that no command of an earlier installer stays.
pub(super) fn assert_command(command: Option<Vec<String>>, role: &str) {
    assert_eq!(command.unwrap(), ["/runtime-bootstrapper", role]);
}

/// Checks that the image starts the same command by default.
pub(super) fn assert_image_starts(role: &str) {
    let dockerfile = include_str!("../../../../Dockerfile");
    let target = dockerfile.split(&format!(" AS {role}\n")).nth(1).unwrap();
    let entry = target
        .lines()
        .find(|it| it.starts_with("ENTRYPOINT"))
        .unwrap();
    let expected = format!(r#"ENTRYPOINT ["/runtime-bootstrapper", "{role}"]"#);
    assert_eq!(entry, expected);
}
