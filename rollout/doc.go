// Package rollout does what a rollout controller does with webhooks: it calls
// them, judges their answers, and drives a canary analysis by them, by metrics
// and by thresholds. It needs no cluster.
//
// The specification is in its words: a canary is in one of seven phases, a
// webhook is of one of eight types.
//
//	Caller     calls one webhook, with timeout, retries and credentials
//	HookType   judges what came of it: see [HookType.Judge]
//	Analysis   one step of an analysis: status in, status out
//	Decode     reads Canary manifests
package rollout
