package traffic

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// Target returns t with a ScaleDown that first waits until the canary has no
// request. After DrainTimeout those are cut off that would not end by
// themselves: connections that were upgraded, event streams, and requests of
// whose bodies nothing was sent or received all the while. When others still
// run, it returns an error, to be called again at the next step; the tenth time
// they are cut off as well. A request that waits for its answer has
// HeaderTimeout instead. A canary that was promoted by [Proxy.Promote] serves as the primary: it is not scaled down.
func (p *Proxy) Target(t rollout.Target) rollout.Target { return drained{t, p} }

type drained struct {
	rollout.Target
	proxy *Proxy
}

func (d drained) ScaleDown(ctx context.Context) error {
	if err := d.proxy.setUp(); err != nil {
		return err
	}
	if d.proxy.promoted.Load() {
		return nil
	}
	d.proxy.balance.look()
	limited, cancel := context.WithTimeout(ctx, or(d.proxy.DrainTimeout, time.Minute))
	defer cancel()
	if err := d.proxy.Drain(limited); err != nil {
		if ctx.Err() != nil || !d.proxy.balance.endStalled() {
			return err
		}
		if err := d.proxy.Drain(ctx); err != nil {
			return err
		}
	}
	d.proxy.balance.drained()
	return d.Target.ScaleDown(ctx)
}
