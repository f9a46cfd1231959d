package pool

import (
	"encoding/json"
	"io"
	"slices"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// The bounds of a chain.
const (
	maxManifest = 1 << 20 // bytes
	maxLayers   = 16      // before they are merged
	maxCommits  = 16      // that are remembered
	minGarbage  = 8 << 20 // bytes of later layers that are never worth a merge
	kept        = 4       // commits whose objects a merge keeps
)

// A chain is the manifest of a pool, as JSON.
type chain struct {
	Layers  []layer `json:"layers"`
	Commits []held  `json:"commits"` // the one used last first
}

// A layer is what one fetch brought. It may refer to those before it.
type layer struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// What is held is complete in the first layers of its chain.
type held struct {
	ID     string `json:"id"`     // what was wanted: the commit, or a tag that leads to it
	Commit string `json:"commit"` // with its tree
	Layers int    `json:"layers"`
	Whole  bool   `json:"whole,omitempty"` // see Commit
}

// load returns the chain of the pool; one that cannot be read is empty.
func (p *Pool) load() *chain {
	c := new(chain)
	e, err := p.cache.Open(p.key("manifest"))
	if err != nil {
		return c
	}
	defer e.Close()
	data, err := io.ReadAll(io.LimitReader(e, maxManifest))
	if err != nil || json.Unmarshal(data, c) != nil || !c.valid() {
		return new(chain)
	}
	return c
}

func (c *chain) valid() bool {
	return !slices.ContainsFunc(c.Commits, func(h held) bool {
		_, err := object.ParseID(h.ID)
		_, err1 := object.ParseID(h.Commit)
		return err != nil || err1 != nil || h.Layers < 1 || h.Layers > len(c.Layers)
	})
}

func (p *Pool) save(c *chain) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return p.cache.Put(p.key("manifest"), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// forget empties the chain, here and in the cache, the manifest first.
func (p *Pool) forget(c *chain) {
	p.cache.Remove(p.key("manifest"))
	p.drop(c.Layers)
	*c = chain{}
}

// drop removes layers; what cannot be removed the cache forgets in time.
func (p *Pool) drop(layers []layer) {
	for _, l := range layers {
		p.cache.Remove(p.key(l.Name))
	}
}

// find returns the objects of the commit or tag id, nil when it is not held, and makes
// it the commit used last.
func (p *Pool) find(c *chain, id object.ID) *Objects {
	at := slices.IndexFunc(c.Commits, func(h held) bool { return h.ID == id.String() || h.Commit == id.String() })
	if at < 0 {
		return nil
	}
	h := c.Commits[at]
	objects := p.open(c, h.Layers)
	if objects == nil || len(objects.packs) < h.Layers {
		objects.Close()
		return nil
	}
	if at > 0 {
		c.Commits = slices.Insert(slices.Delete(c.Commits, at, at+1), 0, h)
		p.save(c) // for the order only
	}
	return objects
}

// base returns what a fetch can build on, nil when that is nothing.
func (p *Pool) base(c *chain) *Objects {
	objects := p.open(c, len(c.Layers))
	if len(c.Commits) > 0 {
		return objects
	}
	objects.Close()
	p.forget(c)
	return nil
}

// open opens the first n layers. Where one cannot be read, the chain ends
// before it. It returns nil when there are none.
func (p *Pool) open(c *chain, n int) *Objects {
	var objects *Objects
	for i, l := range c.Layers[:n] {
		pack, err := p.thaw(l)
		if err != nil {
			p.drop(c.Layers[i:])
			c.Layers = c.Layers[:i]
			c.Commits = slices.DeleteFunc(c.Commits, func(h held) bool { return h.Layers > i })
			break
		}
		objects = objects.with(pack)
	}
	return objects
}

func (p *Pool) thaw(l layer) (*packfile.Pack, error) {
	e, err := p.cache.Open(p.key(l.Name))
	if err != nil {
		return nil, err
	}
	pack, err := packfile.Thaw(e)
	if err != nil {
		e.Close()
	}
	return pack, err
}

// commits returns the commits of the chain.
func (c *chain) commits() []Commit {
	list := make([]Commit, len(c.Commits))
	for i, h := range c.Commits {
		id, _ := object.ParseID(h.Commit) // valid, see load
		list[i] = Commit{id, h.Whole}
	}
	return list
}

// with returns the chain with one more layer, which completes h.
func (c *chain) with(l layer, h held) *chain {
	next := &chain{Layers: append(slices.Clip(c.Layers), l)}
	h.Layers = len(next.Layers)
	next.Commits = append(next.Commits, h)
	for _, old := range c.Commits {
		if len(next.Commits) < maxCommits && old.ID != h.ID && old.ID != h.Commit {
			next.Commits = append(next.Commits, old)
		}
	}
	return next
}

// crowded reports whether the layers should be merged.
func (c *chain) crowded() bool {
	var later int64
	for _, l := range c.Layers[min(1, len(c.Layers)):] {
		later += l.Size
	}
	return len(c.Layers) > maxLayers || later > minGarbage && later > c.Layers[0].Size
}
