Feature: Installation of the webhook on a runtime
  A RuntimeBootstrapper on KCP installs the webhook on the runtime of the same name and reports its state.

  @node @smoke
  Scenario: A RuntimeBootstrapper installs the webhook on the runtime
    Given Runtime "two" without a webhook
    When RuntimeBootstrapper "two" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "two" has condition Ready=True with reason "Ready"
    And the webhook on runtime "two" mutates a Pod that opts in
    And the status of RuntimeBootstrapper "two" has the version, the ready replicas and the hashes of runtime "two"

  @node
  Scenario: The conditions of a RuntimeBootstrapper show that the webhook does not start
    Given Runtime "one" in mode direct
    And Deployment "kyma-system/rt-bootstrapper-controller-manager" on runtime "one" is patched with:
      """
      spec: {progressDeadlineSeconds: 5}
      """
    When RuntimeBootstrapper "one" is patched with:
      """
      spec: {webhook: {image: "localhost/never:1"}}
      """
    Then RuntimeBootstrapper "one" has condition Installed=False with reason "ProgressDeadlineExceeded"
    And RuntimeBootstrapper "one" has condition Ready=False with reason "ProgressDeadlineExceeded" and message containing "Installed: "
    When RuntimeBootstrapper "one" is patched with:
      """
      spec: {webhook: null}
      """
    Then RuntimeBootstrapper "one" has condition Ready=True with reason "Ready"

  Scenario Outline: A RuntimeBootstrapper with <mistake> is denied by the API server
    Then the API server denies RuntimeBootstrapper "<name>" with message containing "<field>":
      """
      spec: <spec>
      """

    Examples:
      | mistake                         | name                                                             | spec                        | field               |
      | an empty image                  | invalid                                                          | {webhook: {image: ""}}      | spec.webhook.image  |
      | an image without a tag          | invalid                                                          | {webhook: {image: a/b}}     | spec.webhook.image  |
      | an unknown deletion policy      | invalid                                                          | {deletionPolicy: Forget}    | spec.deletionPolicy |
      | a name of more than 63 letters  | xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx | {}                          | at most 63          |

  Scenario: A RuntimeBootstrapper without a Runtime is reported and can be deleted
    When RuntimeBootstrapper "missing" is created with:
      """
      spec: {}
      """
    Then RuntimeBootstrapper "missing" has condition Reachable=False with reason "RuntimeNotFound"
    When RuntimeBootstrapper "missing" is deleted
    Then RuntimeBootstrapper "missing" is deleted
