package run

import (
	"fmt"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// recall fills the desk from its file: runs that were under way are Lost, and
// verdicts that nobody received may be shared.
func (d *Desk) recall(f *file) error {
	all, bad, err := f.load()
	if err != nil {
		return err
	}
	d.history = newHistory(d, f)
	if len(bad) > 0 {
		d.history.removed = bad
		d.history.nudge()
		d.config.Warn(fmt.Errorf("history of runs: %d of %d records cannot be read and are removed", len(bad), len(bad)+len(all)))
	}
	now := d.config.Now().UTC()
	for _, s := range all {
		e := &entry{key: s.key, failOnError: s.failOnError, run: s.run, saved: true, written: true}
		d.add(e)
		if !e.ended() {
			e.run.State, e.run.Ended, e.run.Reason = api.Lost, now, "the test runner died before the run ended"
			d.history.put(e)
		}
		d.clock.last = max(d.clock.last, idTime(e.run.ID))
	}
	go d.history.keep()
	return nil
}
