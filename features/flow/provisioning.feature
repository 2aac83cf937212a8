# The numbers are those of the twelve documented steps. Steps 2, 6 and 8 are watches, which are seen by what follows from them.
Feature: A Runtime is provisioned and its Kyma becomes Ready
  KEB creates a Runtime, KIM provisions its cluster, and KLM deploys modules, which run because of the webhook.

  Scenario Outline: The Kyma of a new Runtime becomes Ready in mode <mode>
    When KEB provisions Runtime "one" in mode <mode> with module "pause"
    Then as soon as KEB may create the Kyma, a Pod that opts in is mutated on runtime "one"
    And the Kyma of Runtime "one" is Ready within 120 seconds
    And the flow of Runtime "one" went through these steps in order:
      """
      1 Runtime created
      2 cluster requested by KIM
      3 kubeconfig published
      4 webhook installed
      4 webhook available
      5 Runtime Ready
      6 Runtime found Ready by KEB
      7 Kyma created
      8 Kyma created on the runtime by KLM
      9 module applied
      10 Pod mutated
      11 Pod runs
      12 Kyma Ready
      """
    And the Pod with label "app=pause-test1" in Namespace "kyma-system" equals file "scenarios/fixtures/pause-test1-pod.yaml"

    Examples:
      | mode   |
      | signal |
      | direct |

  Scenario Outline: Modules with a StatefulSet, a DaemonSet and a Job run in the landscape in mode <mode>
    When KEB provisions Runtime "one" in mode <mode> with modules "pause, workloads"
    Then field status.state of Kyma "kcp-system/one" is "Ready"
    And field status.readyReplicas of StatefulSet "kyma-system/stateful" is 1
    And field status.numberReady of DaemonSet "kyma-system/daemon" is 1
    And field status.succeeded of Job "kyma-system/job" is 1

    Examples:
      | mode   |
      | signal |
      | direct |

  Scenario: The Kyma is not Ready on a runtime without the webhook
    When KEB provisions Runtime "one" without a webhook with module "pause"
    Then the image of the Pods with label "app=pause-test1" on runtime "one" cannot be pulled
    And field status.state of Kyma "kcp-system/one" is "Processing"
    When label "rt-bootstrapper.kyma-project.io/mode" of Runtime "one" is set to "direct"
    Then RuntimeBootstrapper "one" has condition Ready=True
    When the Pods with label "app=pause-test1" on runtime "one" are deleted
    Then field status.state of Kyma "kcp-system/one" is "Ready"
