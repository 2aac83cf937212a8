Feature: Answers of the watcher
  Every AdmissionReview is allowed; the message says whether an event was queued, and if not, why.

  # "event queued" continues with "for KCP", or with "in memory only" where the disk takes longer than two milliseconds.
  Scenario Outline: An AdmissionReview for <operation> with <change> is allowed with message "<message>"
    Given Namespace "shop"
    When an AdmissionReview for <operation> of Kyma "shop/app" with <change> is posted to the watcher
    Then the AdmissionReview is allowed with message "<message>"
    And manager "lifecycle-manager" receives <event> for Kyma "shop/app"

    Examples:
      | operation | change           | message                                                                         | event    |
      | CREATE    | no change        | event queued                                                                    | an event |
      | CREATE    | no spec          | event queued                                                                    | an event |
      | UPDATE    | no change        | no change detected on watched resource shop/app                                 | no event |
      | UPDATE    | a changed spec   | event queued                                                                    | an event |
      | UPDATE    | a changed status | event queued                                                                    | an event |
      | UPDATE    | no spec          | event queued                                                                    | an event |
      | DELETE    | no change        | event queued                                                                    | an event |
      | CONNECT   | no change        | operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma | no event |
