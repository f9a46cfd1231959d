package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
	"github.com/headgate-io/headgate/rollout/notify"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// goodbye is how long receivers of events are waited for at the end.
const goodbye = 20 * time.Second

// A closing undoes what was opened, the last first.
type closing []func() error

func (c *closing) add(end func() error) { *c = append(*c, end) }

func (c *closing) close() error {
	var errs []error
	for _, end := range slices.Backward(*c) {
		errs = append(errs, end())
	}
	*c = nil
	return errors.Join(errs...)
}

// connectMetrics finds who answers the metrics, and refuses a canary one of
// whose metrics nobody can be asked for.
func (d *drive) connectMetrics(ctx context.Context, querier *metric.Querier) error {
	d.analysis.Metrics = d.flags.measured(d.canary, querier, d.proxy)
	own := d.analysis.Metrics != querier // the proxy answers those that are built in
	for _, m := range d.canary.Spec.Analysis.Metrics {
		if own && m.Builtin() {
			continue
		}
		if err := querier.Check(d.canary, m); err != nil {
			return fmt.Errorf("%s: %w", d.canary, err)
		}
	}
	if !own {
		if err := querier.Online(ctx, d.canary); err != nil && ctx.Err() == nil { // who scrapes may come later
			d.view.warn(fmt.Errorf("metrics: %w", err))
		}
	}
	return nil
}

// connect makes the analysis and its ports for a rollout that has come as far
// as s. What it opened is ended by open, with an error too.
func (d *drive) connect(ctx context.Context, s rollout.Status, open *closing) error {
	secrets, err := d.secretsOf(d.flags.secrets, d.book.documents)
	if err != nil {
		return err
	}
	querier, err := d.flags.querier(d.book, secrets)
	if err != nil {
		return err
	}
	providers, err := collect(d.book, notify.Decode)
	if err != nil {
		return err
	}
	caller := &rollout.Caller{Secrets: secrets, Proxy: http.ProxyFromEnvironment}
	open.add(func() error { caller.Close(); querier.Close(); return nil })
	d.analysis = &rollout.Analysis{Canary: d.canary, Hooks: caller}
	if err := d.connectTraffic(ctx, s, open); err != nil {
		return err
	}
	if !d.aborting { // which asks no metrics
		if err := d.connectMetrics(ctx, querier); err != nil {
			return err
		}
	}
	told, err := notify.Start(ctx, notify.Config{
		Canary: d.canary, Providers: providers, EventURL: d.flags.eventURL, Cluster: d.flags.cluster,
		Caller: caller, Report: d.view.warn,
	})
	if err != nil {
		return err
	}
	open.add(func() error {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		if err := told.Close(limited); err != nil { // how much was lost at all; of some of that Report has told why
			d.view.warn(err)
		}
		return nil
	})
	d.analysis.Sink = sinks{d.view, told}
	if d.swapping != nil {
		d.analysis.Sink = servedSink{d.analysis.Sink, d.flags.canary}
	}
	return d.serve(ctx, open)
}

// sinks are told all events.
type sinks []rollout.Sink

func (all sinks) Emit(ctx context.Context, e rollout.Event) {
	for _, s := range all {
		s.Emit(ctx, e)
	}
}

// connectTraffic makes traffic and target.
func (d *drive) connectTraffic(ctx context.Context, s rollout.Status, open *closing) error {
	driver, err := d.flags.driver()
	if err != nil {
		return err
	}
	var phase atomic.Value
	phase.Store(s.Phase)
	d.phase = func(p rollout.Phase) { phase.Store(p) }
	adapter := &traffic.Adapter{
		Driver: driver, Canary: d.canary, ID: d.flags.revision,
		Start: s.Routes(),
		Phase: func() rollout.Phase { return phase.Load().(rollout.Phase) },
	}
	d.analysis.Traffic, d.analysis.Target = adapter, adapter
	if d.flags.listen == "" {
		return nil
	}
	revision, err := adapter.Revision(ctx)
	if err != nil {
		return err
	}
	promoted, err := d.assign(ctx, s, revision, driver.Has(traffic.Promote))
	if err != nil {
		return err
	}
	if revision != s.AppliedSpec || d.flags.again && s.Ended() {
		s = rollout.Status{} // what another revision had is not for this one
	}
	proxy, err := d.flags.newProxy(ctx, d.canary, s.Routes(), d.interval())
	if err != nil {
		return err
	}
	open.add(func() error { proxy.Close(); return nil })
	d.proxy = proxy
	d.analysis.Traffic, d.analysis.Target = proxy, proxy.Target(adapter)
	if driver.Has(traffic.Promote) {
		return nil
	}
	d.swapping = &swapping{Target: d.analysis.Target, proxy: proxy}
	d.analysis.Target = d.swapping
	if promoted {
		d.swapping.promoted = revision
		proxy.Promote()
	}
	return nil
}

// serve lets the proxy serve. It is the first to end: what comes then is not
// accepted any more, what has come is answered.
func (d *drive) serve(ctx context.Context, open *closing) error {
	if d.proxy == nil {
		return nil
	}
	front, err := d.flags.serve(d.proxy, d.stop, d.view.warn)
	if err != nil {
		return err
	}
	open.add(func() error {
		if err := front.close(ctx); err != nil {
			d.view.warn(err)
		}
		d.view.say("the proxy at http://" + front.listener.Addr().String() + " has ended")
		return nil
	})
	d.view.say("serving at http://" + front.listener.Addr().String() + ": " + d.servers())
	return nil
}
