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
//
// # Manifests
//
// A [Canary] holds what its manifest says; methods return the defaults of what
// is left out, so that one made in Go has them too. [Decode] reads spec.analysis
// as strictly as an API server: names of fields are case-sensitive, unknown and
// duplicate fields are defects, nothing is converted from one type to another.
// Manifests of the reference implementation are read unchanged.
//
// An analysis starts with a canary for which [Canary.Check] returns nil. Decode
// warns of what Check refuses, as manifests in the field have it, and of what has
// no effect. Each error and warning is a [*DocumentError].
//
// Limits: a stream has at most 64 MiB, a document 3 MiB, a list of the analysis
// 100 items, metadata and variables 256 KiB, a webhook 100 retries.
//
// # Analyses
//
// An analysis goes in steps, one each interval, through the ports [Traffic],
// [Target], [Metrics], [Hooks] and [Sink]. [Analysis.Step] has no clock and no
// goroutine; all that it knows is the [Status], which is stored after each step:
// an analysis may be cut short anywhere and goes on from there. What a step
// decides is the table "Decisions" of docs/rollout.md, which a test reads.
package rollout
