// Package simulate runs an analysis with scripted outcomes and a simulated clock,
// and returns what happened in each tick. It calls nothing outside the process.
//
// A tick is one step of the analysis. Tick 0 initialises the canary. From tick 1 on
// the target has a second revision, so a rollout begins. Unless the script says
// otherwise, everything succeeds: webhooks answer 200 (those of type rollback 403),
// metrics are inside their range, canary and primary are ready.
//
// # Script
//
// An outcome lists the results of one operation or check: values separated by
// commas, each with the ticks for which it holds.
//
//	403          in every tick that no other value names
//	403@4        in tick 4
//	403@1-4      in ticks 1 to 4
//	403@4-       from tick 4 on
//
// If several values hold for a tick, the last one counts. The allowed values depend
// on the [Subject]. An outcome of a webhook, a metric or a method of the target
// starts with its name:
//
//	hook       load=500@3-5     a webhook by its name or its type: a status, timeout or refused
//	metric     latency=300@4    a number, none (no values) or error
//	target     promote=error@4  scale-up, scale-down, promote or revision: ok or error
//	canary     not-ready@2      ready, not-ready or stuck (it never becomes ready)
//	primary    not-ready@2      the same
//	traffic    error@3          ok, error or set-error (reading works)
//	revision   v3@6             any text; without an end it holds from that tick on
//	suspend    on@3-5           on or off
package simulate
