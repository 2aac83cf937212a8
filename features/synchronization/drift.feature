Feature: What somebody changes on a runtime is put back
  A customer is free in their cluster; the landscape's objects stay what the landscape says.

  Background:
    Given a runtime in direct mode

  Scenario Outline: An object of ours is edited or deleted
    When somebody on the runtime <does> the <object>
    Then the runtime has the <object> of KCP again

    Examples:
      | does    | object        |
      | edits   | pull Secret   |
      | deletes | pull Secret   |
      | edits   | trust bundle  |
      | deletes | trust bundle  |
      | edits   | configuration |
      | deletes | configuration |

  @node
  Scenario Outline: A part of the webhook is deleted
    When somebody on the runtime deletes the webhook's <part>
    Then the webhook's <part> is as installed again

    Examples:
      | part                         |
      | Service                      |
      | MutatingWebhookConfiguration |

  @node
  Scenario: A part of the webhook is edited
    When somebody on the runtime takes the rules out of the webhook's ClusterRole
    Then the webhook's ClusterRole is as installed again

  Scenario: Nothing differs, nothing is written
    Then the runtime is not written to
