// Package simulate runs an analysis with scripted outcomes and an own clock,
// and tells what happened tick by tick. It calls nothing outside the process.
//
// A tick is one step of the analysis. Tick 0 is the first sight of the canary,
// which initialises it; from tick 1 on the target has a second revision, so that
// a rollout begins. Where the script says nothing, everything goes well:
// webhooks answer 200 (those of type rollback 403), metrics are inside their
// range, canary and primary are ready.
//
// # Script
//
// An outcome says what comes of one thing, by ticks: values separated by
// commas, each with the ticks it is for.
//
//	403          always, where no other value is for the tick
//	403@4        in tick 4
//	403@1-4      in ticks 1 to 4
//	403@4-       from tick 4 on
//
// Where several values are for a tick, the last one counts. What a value may be
// depends on the [Subject]; one that is of a webhook, a metric or a method of
// the target starts with a name:
//
//	hook       load=500@3-5     a webhook by its name or its type: a status, timeout or refused
//	metric     latency=300@4    a number, none (no values) or error
//	target     promote=error@4  scale-up, scale-down, promote or revision: ok or error
//	canary     not-ready@2      ready, not-ready or stuck (it never becomes ready)
//	primary    not-ready@2      the same
//	traffic    error@3          ok, error or set-error (reading works)
//	revision   v3@6             any text; without an end it is from that tick on
//	suspend    on@3-5           on or off
package simulate
