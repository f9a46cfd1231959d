// Package notify tells people and programs what an analysis does: alerts go to
// chat services, events to webhooks of type event (specification, "Events").
//
// A [Dispatcher] is the [rollout.Sink] that does both. Its rules:
//
//   - Emit returns at once; a receiver that hangs holds up neither the analysis
//     nor another receiver.
//   - Each receiver is told in order, and at least once.
//   - What fails in a way that time may mend is tried again, after 1s, 2s, 4s
//     and so on up to 30s, or as long as the receiver asks for, at most 1m.
//   - What waits for a receiver is bounded, in number and in bytes. When it
//     is full, the oldest of the least severe events is dropped.
//   - Nothing is lost in silence: an event that was not delivered is reported,
//     the next that is delivered says how many there were, and Close returns
//     their number.
//   - After Close no goroutine is left.
//
// A [Notifier] posts alerts to one service. Text from elsewhere, such as the
// answer of a webhook, is shown as text: it mentions nobody, links nothing under
// another name, has no control characters, and is at most [MaxText] characters
// long. The address of a service and its token are secrets: errors
// show a scheme and a host.
package notify
