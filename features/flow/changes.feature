Feature: The landscape changes while a Runtime exists
  The sources, the credentials and the components change or end while a Runtime is provisioned, exists, or goes.

  @serial
  Scenario Outline: Pods run before and after the credentials of the registry are rotated in mode <mode>
    Given Runtime "one" in mode <mode> whose Kyma has module "pause" and is Ready
    When the credentials of the registry on KCP are replaced by those of another user, and the earlier ones are revoked
    Then Secret "kyma-system/registry-credentials" has the data of Secret "kcp-system/registry-credentials"
    When Kyma "kyma-system/default" is patched with:
      """
      spec: {modules: [{name: pause}, {name: workloads}]}
      """
    Then StatefulSet "kyma-system/stateful" matches:
      """
      status: {readyReplicas: 1}
      """
    And field status.readyReplicas of Deployment "kyma-system/pause-test1" is 1

    Examples:
      | mode   |
      | signal |
      | direct |

  Scenario Outline: No object on KCP names a Runtime that was deprovisioned in mode <mode>
    Given Runtime "one" in mode <mode> whose Kyma has module "pause" and is Ready
    When KEB deprovisions Runtime "one"
    Then no object on KCP names Runtime "one"

    Examples:
      | mode   |
      | signal |
      | direct |

  @serial
  Scenario Outline: The Kyma becomes Ready when all components are upgraded on the way in mode <mode>
    When KEB provisions Runtime "one" in mode <mode> with module "pause"
    And all components are upgraded while Runtime "one" is provisioned
    Then the Kyma of Runtime "one" is Ready within 240 seconds
    And webhook and watcher on runtime "one" run the upgraded images
    And field status.readyReplicas of Deployment "kyma-system/pause-test1" is 1

    Examples:
      | mode   |
      | signal |
      | direct |

  @slow
  Scenario Outline: The Kyma becomes Ready when a component is killed on the way in mode <mode>, with seed <seed>
    When KEB provisions Runtime "one" in mode <mode> with module "pause"
    And a random component is killed while Runtime "one" is provisioned, with seed <seed>
    Then the Kyma of Runtime "one" is Ready within 240 seconds
    And the Pod with label "app=pause-test1" in Namespace "kyma-system" equals file "scenarios/fixtures/pause-test1-pod.yaml"

    # By the seeds: webhook that serves (twice), watcher, webhook that starts.
    Examples:
      | mode   | seed |
      | signal | 2    |
      | direct | 10   |
      | signal | 3    |
      | direct | 4    |

    # Controller, KLM, which other scenarios use.
    @serial
    Examples:
      | mode   | seed |
      | direct | 8    |
      | signal | 9    |

    # Watcher, controller, KLM, webhook that starts.
    @long
    Examples:
      | mode   | seed |
      | direct | 5    |
      | signal | 18   |
      | direct | 11   |
      | signal | 6    |
