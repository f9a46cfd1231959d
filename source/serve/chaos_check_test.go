package serve_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// A damage is what was done to a file of the store.
type damage struct {
	name   string // of the object
	at     time.Time
	secret bool // only hashing shows it
}

// note remembers that an artifact is not what it was.
func (w *chaos) note(name, path string, secret bool) {
	if old, there := w.damaged[path]; there && !old.secret {
		secret = false
	}
	w.damaged[path] = damage{name, time.Now(), secret}
}

// damage spoils the artifact of an object: so that it shows, or not, or all of it.
func (w *chaos) damage() {
	name := w.any()
	v, err := w.View(named(name))
	if err != nil || v.Object.Artifact() == nil {
		return
	}
	a := v.Object.Artifact()
	w.serves(name, *a)
	file := filepath.Join(w.dir, "store", filepath.FromSlash(a.Path))
	info, err := os.Stat(file)
	if err != nil {
		return
	}
	secret := false
	switch w.rand.IntN(4) {
	case 0:
		err = os.Remove(file)
	case 1:
		err = os.Truncate(file, info.Size()/2)
	case 2:
		w.flip(file)
	case 3:
		secret = true
		w.flip(file)
		err = os.Chtimes(file, info.ModTime(), info.ModTime())
	}
	if err != nil {
		w.Fatal(err)
	}
	w.note(name, a.Path, secret)
}

func (w *chaos) flip(file string) {
	text, err := os.ReadFile(file)
	if err == nil {
		text[w.rand.IntN(len(text))] ^= 1
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// damagedStatus removes or tears the saved status of an object.
func (w *chaos) damagedStatus() {
	file := filepath.Join(w.Ledger.Dir, "gitrepository", "default", w.any()+".yaml")
	if _, err := os.Stat(file); err != nil {
		return
	}
	if w.rand.IntN(2) == 0 {
		os.Remove(file)
	} else if err := os.WriteFile(file, []byte("status: ["), 0o600); err != nil {
		w.Fatal(err)
	}
}

// check holds every rule against what is now: of what changed since the last
// look, or of everything.
func (w *chaos) check(all bool) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if all {
		clear(w.looked)
	}
	views := w.Views()
	for _, v := range views {
		w.notLate(v)
		name := v.Object.Head().Metadata.Name
		a := v.Object.Artifact()
		if a == nil || w.looked[name] == a {
			continue
		}
		w.looked[name] = a
		w.serves(fmt.Sprintf("%s (%s, %s)", name, v.Phase, v.Last.Result.Outcome), *a)
	}
	if w.defects {
		w.nobodyIsRemoved(views)
	}
	if all && w.faults["ledger"] == nil {
		w.checkLedger()
	}
}

// checkLedger checks what is saved, as somebody else reads it.
func (w *chaos) checkLedger() {
	ledger := &source.Ledger{Dir: w.Ledger.Dir}
	refs, err := ledger.References()
	if err != nil {
		w.Error(err)
	}
	for _, ref := range refs {
		if obj, err := ledger.Object(ref); err == nil && obj.Artifact() != nil { // some are torn
			w.serves("the saved "+ref.Name, *obj.Artifact())
		}
	}
}

// serves checks that an artifact is served as its digest says, or is not served
// when it was damaged and no run could mend it.
func (w *chaos) serves(who string, a artifact.Artifact) {
	answer := httptest.NewRecorder()
	w.Store.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(w.Context(), "GET", "/"+a.Path, nil))
	d, damaged := w.damaged[a.Path]
	age := time.Since(d.at)
	right := "sha256:"+fmt.Sprintf("%x", sha256.Sum256(answer.Body.Bytes())) == a.Digest
	switch {
	case answer.Code == 200 && right:
		delete(w.damaged, a.Path)
	case answer.Code == 200 && !(damaged && d.secret):
		w.Errorf("%s: %s is served with other content", who, a.Path)
	case answer.Code == 200 && age > chaosScrub+3*time.Minute:
		w.Errorf("%s: %s is served damaged for %s", who, a.Path, age)
	case answer.Code == 200:
	case !damaged:
		w.Errorf("%s has %s, which is answered %d", who, a.Path, answer.Code)
	case w.good[d.name].After(d.at) && !d.secret && w.faults["directory "+d.name] == nil && !strings.Contains(who, "saved"):
		w.Errorf("%s has %s, which is answered %d, though it was checked after the damage", who, a.Path, answer.Code)
	}
}

// notLate checks that an object that is to run does so.
func (w *chaos) notLate(v serve.View) {
	name := v.Object.Head().Metadata.Name
	switch v.Phase {
	case serve.Stalled, serve.Suspended, serve.Removed, serve.Gone:
		w.base[name] = time.Now()
		return
	}
	from := w.base[name]
	if from.IsZero() {
		from = time.Now()
		w.base[name] = from
	}
	if ran := w.ran[name]; ran.After(from) {
		from = ran
	}
	bound := 10 * time.Minute
	if steady(name) {
		bound = 2 * time.Minute
	}
	if since := time.Since(from); since > v.Object.Interval()*106/100+bound {
		w.Errorf("%s (%s, interval %s) did not run for %s; %+v", name, v.Phase, v.Object.Interval(), since, w.Stats())
	}
}

// nobodyIsRemoved checks that a feed with defects removes nothing.
func (w *chaos) nobodyIsRemoved(views []serve.View) {
	phases := make(map[string]serve.View)
	for _, v := range views {
		phases[v.Object.Head().Metadata.Name] = v
	}
	for i, name := range w.names {
		if v, there := phases[name]; i%7 == 3 && there && v.Phase != serve.Removed && !v.Missing {
			w.Errorf("%s is neither removed nor missing: %+v", name, v)
		}
	}
}

// settle ends all faults: everything gets ready, and nothing is left behind.
func (w *chaos) settle() {
	for _, name := range slices.Sorted(maps.Keys(w.faults)) {
		w.heal(name)
	}
	for name, p := range w.plans {
		calm := *p
		calm.suspend, calm.inputs = false, slices.DeleteFunc(slices.Clone(p.inputs), func(in string) bool { return w.plans[in] == nil || !earlier(in, name) })
		w.plans[name] = &calm
	}
	w.jump.Store(int64(24 * time.Hour)) // past everything that was
	w.put()
	for _, name := range w.names {
		if err := errors.Join(w.Resume(named(name)), first(w.Request(named(name), serve.Request))); err != nil {
			w.Error(err)
		}
	}
	time.Sleep(chaosRetention + 2*chaosScrub + 20*time.Minute)
	synctest.Wait()
	w.check(true)
	w.newest()
	w.stop()
	time.Sleep(2 * time.Hour) // who waits
	w.nothingLeft()
}

func first(_ int64, err error) error { return err }

// earlier reports whether the number of a name is less.
func earlier(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

// newest checks that everything is ready, and what it is to be.
func (w *chaos) newest() {
	views := w.Views()
	if len(views) != len(w.names) {
		w.Errorf("%d objects, %d in the feed", len(views), len(w.names))
	}
	for _, v := range views {
		g := v.Object.(*source.GitRepository)
		name, a := g.Metadata.Name, v.Object.Artifact()
		if g.Common().Condition(source.ReadyCondition).Status != "True" || a == nil || w.plans[name] == nil {
			w.Errorf("%s is not ready in the end: %+v, %+v", name, v, g.Status)
			continue
		}
		var inputs []artifact.Artifact
		for _, in := range w.plans[name].inputs {
			if of, err := w.View(named(in)); err == nil && of.Object.Artifact() != nil {
				inputs = append(inputs, *of.Object.Artifact())
			}
		}
		want := textOf(w.up(g.Spec.URL).rev, inputs)
		got, err := os.ReadFile(filepath.Join(w.dir, "store", filepath.FromSlash(a.Path)))
		if err != nil || string(got) != want {
			w.Errorf("%s has not the newest content: %v, %+v", name, err, v)
		}
		if w.up(g.Spec.URL).open != 0 {
			w.Errorf("%s: contents are still open", name)
		}
	}
}

// nothingLeft checks that store and ledger have what there is and nothing else.
func (w *chaos) nothingLeft() {
	var want, got []string
	for _, name := range w.names {
		want = append(want, "ledger/gitrepository/default/"+name+".yaml", "store/gitrepository/default/"+name)
	}
	err := filepath.WalkDir(w.dir, func(name string, d fs.DirEntry, err error) error {
		name, _ = filepath.Rel(w.dir, name)
		name = filepath.ToSlash(name)
		object := strings.HasPrefix(name, "store/gitrepository/default/")
		switch {
		case err != nil || d.IsDir() && !object || name == "ledger/.memo" || strings.HasPrefix(name, "store/.store/object/"):
		case object:
			if strings.Count(name, "/") == 3 {
				got = append(got, name)
			}
		default:
			got = append(got, name)
		}
		return err
	})
	slices.Sort(want)
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		w.Errorf("left %v, %q; there is %v", err, missing(got, want), w.names)
	}
	of := make(map[string]int)
	for _, name := range w.stored() {
		dir := path.Dir(path.Dir(name))
		if of[dir]++; of[dir] > 3 { // a date that was set back makes superseded ones last until the next
			w.Errorf("%s has %d artifacts", dir, of[dir])
		}
	}
	locks, err := os.ReadDir(filepath.Join(w.dir, "store", ".store", "object", "gitrepository", "default"))
	if err != nil || len(locks) > len(w.names) {
		w.Errorf("%d directories of locks of %d objects, %v", len(locks), len(w.names), err)
	}
}

// missing says what two lists do not have in common.
func missing(got, want []string) (differ []string) {
	for _, name := range got {
		if !slices.Contains(want, name) {
			differ = append(differ, "+"+name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			differ = append(differ, "-"+name)
		}
	}
	return differ
}
