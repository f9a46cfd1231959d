package serve_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// chaosSteps are what happens, and how often.
var chaosSteps = []struct {
	name  string
	often int
	do    func(w *chaos)
}{
	{"move", 20, (*chaos).move},
	{"fail", 4, func(w *chaos) { w.upstreamFault(errors.New("connection refused")) }},
	{"busy", 4, func(w *chaos) { w.upstreamFault(busy(w.rand.IntN(120)) * busy(time.Second)) }},
	{"invalid", 2, func(w *chaos) { w.upstreamFault(fmt.Errorf("%w: no such branch", source.ErrInvalid)) }},
	{"hang", 4, func(w *chaos) { w.upstreamChange(func(u *upstream) { u.hang = time.Hour }) }},
	{"slow", 4, func(w *chaos) {
		d := time.Duration(w.rand.Int64N(int64(chaosTimeout * 5 / 4)))
		w.upstreamChange(func(u *upstream) { u.slow = d })
	}},
	{"panic", 1, func(w *chaos) { w.upstreamChange(func(u *upstream) { u.panics = true }) }},
	{"host hangs", 2, (*chaos).hostHangs},
	{"storm", 1, (*chaos).storm},
	{"edit", 12, (*chaos).edit},
	{"rename", 2, (*chaos).rename},
	{"remove", 2, (*chaos).remove},
	{"bad feed", 1, (*chaos).badFeed},
	{"rotate", 4, (*chaos).rotation},
	{"suspend", 3, (*chaos).suspend},
	{"request", 4, (*chaos).request},
	{"jump", 2, func(w *chaos) { w.jump.Store(w.rand.Int64N(int64(24*time.Hour)) - int64(12*time.Hour)) }},
	{"restart", 1, (*chaos).restart},
	{"full disk", 1, (*chaos).fullStore},
	{"lost directory", 1, (*chaos).lostDirectory},
	{"lost ledger", 1, (*chaos).lostLedger},
	{"damage", 3, (*chaos).damage},
	{"damaged status", 1, (*chaos).damagedStatus},
	{"nothing", 6, func(*chaos) {}},
}

// step ends the faults whose time is over, and has something happen.
func (w *chaos) step() {
	for _, name := range slices.Sorted(maps.Keys(w.faults)) {
		if time.Now().After(w.ends[name]) {
			w.heal(name)
		}
	}
	all := 0
	for _, s := range chaosSteps {
		all += s.often
	}
	at := w.rand.IntN(all)
	for _, s := range chaosSteps {
		if at -= s.often; at < 0 {
			w.steps[s.name]++
			s.do(w)
			return
		}
	}
}

// fault is something bad that ends after a while. One of a name is there at a time.
func (w *chaos) fault(name string, mean time.Duration, begin, end func()) {
	if w.faults[name] != nil {
		return
	}
	begin()
	w.faults[name] = end
	w.ends[name] = time.Now().Add(time.Duration(w.rand.ExpFloat64() * float64(mean)))
}

func (w *chaos) heal(name string) {
	end := w.faults[name]
	delete(w.faults, name)
	delete(w.ends, name)
	end()
}

// put has the feed tell what it has.
func (w *chaos) put() { w.feed.put(w.desired()) }

func (w *chaos) move() {
	w.up(w.plans[w.any()].url).set(func(u *upstream) { u.rev = fmt.Sprintf("main@sha1:%040x", w.rand.Uint64()) })
}

func (w *chaos) upstreamFault(err error) { w.upstreamChange(func(u *upstream) { u.err = err }) }

// upstreamChange has an upstream be bad for a while.
func (w *chaos) upstreamChange(bad func(u *upstream)) {
	url := w.plans[w.wildName()].url
	w.fault("upstream "+url, 3*time.Minute, func() { w.up(url).set(bad) }, func() {
		w.up(url).set(func(u *upstream) { u.err, u.hang, u.slow, u.panics = nil, 0, 0, false })
	})
}

// storm has all hosts hang that may.
func (w *chaos) storm() {
	for host := range chaosHosts {
		w.hostHang(host)
	}
}

func (w *chaos) hostHangs() { w.hostHang(w.rand.IntN(chaosHosts)) }

func (w *chaos) hostHang(host int) {
	set := func(d time.Duration) {
		for i := range chaosWild {
			if i%chaosHosts == host {
				w.up(fmt.Sprintf("https://h%d.example/%d", host, i)).set(func(u *upstream) { u.hang = d })
			}
		}
	}
	w.fault(fmt.Sprint("host ", host), 2*time.Minute, func() { set(time.Hour) }, func() { set(0) })
}

// edit changes some of the spec of an object. It may come to need itself.
func (w *chaos) edit() {
	name := w.wildName()
	p := *w.plans[name]
	switch w.rand.IntN(5) {
	case 0:
		p.interval = w.interval()
	case 1:
		p.suspend = !p.suspend && w.rand.IntN(3) == 0
	case 2:
		p.inputs = append(slices.Clip(p.inputs), w.any())
	case 3:
		p.inputs = nil
	case 4:
		p = *w.wild()
	}
	w.plans[name] = &p
	w.need(p)
	w.put()
}

// need makes sure that there is the Secret for an object.
func (w *chaos) need(p plan) {
	if p.secret && w.secrets[secretOf(p.url)].Data == nil && w.faults["secret "+p.url] == nil {
		w.secrets[secretOf(p.url)] = w.rotate(p.url)
	}
}

func (w *chaos) rename() {
	i := chaosSteady + w.rand.IntN(len(w.names)-chaosSteady)
	p := w.plans[w.names[i]]
	delete(w.plans, w.names[i])
	w.names = slices.Delete(w.names, i, i+1)
	w.add(p)
	w.put()
}

// remove takes an object away for longer or shorter than its retention, and puts a new one into its place.
func (w *chaos) remove() {
	i := chaosSteady + w.rand.IntN(len(w.names)-chaosSteady)
	name := w.names[i]
	p := w.plans[name]
	w.fault("removed "+name, chaosRetention, func() {
		delete(w.plans, name)
		w.names = slices.Delete(w.names, i, i+1)
	}, func() {
		w.plans[name] = p
		w.names = append(w.names, name)
		w.need(*p)
		w.put()
	})
	if len(w.names) < chaosSteady+chaosWild*3/4 {
		fresh := w.wild()
		w.add(fresh)
		w.need(*fresh)
	}
	w.put()
}

func (w *chaos) badFeed() {
	w.fault("feed", 5*time.Minute, func() { w.defects = true; w.put() }, func() { w.defects = false; w.put() })
}

// rotation changes a password; the Secret follows at once, or late.
func (w *chaos) rotation() {
	p := w.plans[w.wildName()]
	if !p.secret {
		return
	}
	w.fault("secret "+p.url, time.Duration(w.rand.IntN(2))*time.Minute, func() {
		w.rotate(p.url)
		if w.rand.IntN(3) == 0 {
			delete(w.secrets, secretOf(p.url))
			w.put()
		}
	}, func() {
		w.secrets[secretOf(p.url)] = w.rotate(p.url)
		w.put()
	})
}

func (w *chaos) suspend() {
	ref := named(w.wildName())
	if w.rand.IntN(2) == 0 {
		_ = w.Suspend(ref, source.Suspension{By: "chaos"}) // the disk may not take it
	} else {
		_ = w.Resume(ref)
	}
}

// request asks for a run and has somebody wait for it.
func (w *chaos) request() {
	ref, of := named(w.any()), w.Controller
	run, err := of.Request(ref, serve.Hook)
	if err != nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if _, err := of.Wait(ctx, ref, run); errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("%s: run %d did not end within an hour", ref, run)
		}
	}()
}

// restart ends the controller and starts another. It must be able to read the
// ledger then: what it cannot list it does not know.
func (w *chaos) restart() {
	if w.faults["ledger"] != nil {
		w.heal("ledger")
	}
	w.stop()
	w.restarts++
	time.Sleep(time.Duration(w.rand.ExpFloat64() * float64(20*time.Second)))
	w.begin()
}

// away puts a file into the place of a directory, so that nothing can be
// written there, and back.
func (w *chaos) away(name string, dir string, mean time.Duration) {
	kept := filepath.Join(w.dir, "away", fmt.Sprintf("%x", w.rand.Uint64()))
	if w.faults[name] != nil {
		return
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return
	}
	w.fault(name, mean, func() {
		if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.Rename(dir, kept), os.WriteFile(dir, nil, 0o600)); err != nil {
			w.Fatal(err)
		}
	}, func() {
		if info, err := os.Stat(dir); err == nil && info.IsDir() { // made anew meanwhile
			os.RemoveAll(kept)
			return
		}
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o700), os.Rename(kept, dir)); err != nil {
			w.Fatal(err)
		}
	})
}

// fullStore has the store take nothing more.
func (w *chaos) fullStore() {
	w.away("store", filepath.Join(w.dir, "store", ".store", "tmp"), time.Minute)
}

// lostDirectory has an object lose its directory; a file is in its place.
func (w *chaos) lostDirectory() {
	name := w.any()
	for _, path := range w.stored() {
		if strings.HasPrefix(path, "gitrepository/default/"+name+"/") {
			w.note(name, path, false)
		}
	}
	w.away("directory "+name, filepath.Join(w.dir, "store", "gitrepository", "default", name), time.Minute)
}

// lostLedger has the ledger take and give nothing.
func (w *chaos) lostLedger() {
	w.away("ledger", filepath.Join(w.Ledger.Dir, "gitrepository"), time.Minute)
	synctest.Wait()
}
