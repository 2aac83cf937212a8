# cert-manager issues another CA. The gateway presents a certificate of it when the watchers report that they trust it.
Feature: Rotation of the CA of the watchers
  The certificates of the gateway and of all runtimes are replaced while events are delivered.

  @serial
  Scenario: No change is missed while the CA of the watchers is rotated
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=True
    When the CA of both sides is rotated while Kymas are created on Runtime "one" continuously
    Then manager "lifecycle-manager" receives an event for each of the created Kymas
    And metric "listener.ssl.handshake_errors" of the gateway increases by 0
    And the API server got an answer to every AdmissionReview

  # KCP cannot reach the API server of the runtime, and the watcher there reaches KCP. The step checks that the old CA is trusted and
  # used meanwhile, and that the runtime gets the new CA and its certificate afterwards.
  @serial
  Scenario: A runtime that is unreachable during a rotation of the CA reports changes meanwhile and gets the new CA later
    Given Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=True
    When the CA of both sides is rotated during an outage of the runtime while Kymas are created on Runtime "one" continuously
    Then manager "lifecycle-manager" receives an event for each of the created Kymas
    And metric "listener.ssl.handshake_errors" of the gateway increases by 0
    And the API server got an answer to every AdmissionReview

  # The grace period ends before the kubelets have replaced the files of the watchers, which reject the gateway until then.
  @serial
  Scenario: No change is missed while the CA is rotated twice and the gateway does not wait for the watchers
    Given the controller runs with flags "--istio-gateway-server-cert-switch-grace-period=1s"
    And Runtime "one" in mode direct whose Kyma has module "pause" and is Ready
    Then RuntimeBootstrapper "one" has condition WatcherInstalled=True
    When the CA of both sides is rotated twice while Kymas are created on Runtime "one" continuously
    Then manager "lifecycle-manager" receives an event for each of the created Kymas
