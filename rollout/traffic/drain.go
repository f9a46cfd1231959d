package traffic

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// Target returns t with a ScaleDown that first waits until the canary has no
// request. After DrainTimeout connections that were upgraded and event streams,
// which have no end of their own, are closed; when other requests still run, it
// returns an error, to be called again at the next step. A canary that was
// promoted by [Proxy.Promote] serves as the primary: it is not scaled down.
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
	limited, cancel := context.WithTimeout(ctx, or(d.proxy.DrainTimeout, time.Minute))
	defer cancel()
	if err := d.proxy.Drain(limited); err != nil {
		if ctx.Err() != nil || !d.proxy.balance.endEndless() {
			return err
		}
		if err := d.proxy.Drain(ctx); err != nil {
			return err
		}
	}
	return d.Target.ScaleDown(ctx)
}
