package controller

import (
	"encoding/json"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A memo is which Secrets the last runs of all objects used, as the ledger has it.
type memo struct {
	Key     []byte      `json:"key"` // of the sums
	Objects []memoEntry `json:"objects"`
}

type memoEntry struct {
	Object  source.Reference `json:"object"`
	Lookups []memoLookup     `json:"lookups"`
}

type memoLookup struct {
	Account   bool   `json:"account,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Sum       []byte `json:"sum"`
}

// memoSum is how many bytes of a sum are saved: too few to find out from the
// memo, which has the key, what a Secret was, and enough to see that it is another.
const memoSum = 2

// memoPause is how long changes are gathered before the memo is saved.
const memoPause = 10 * time.Second

// recall takes over the key of the memo, and adds its lookups to known. A memo that is damaged
// counts as none.
func (c *Controller) recall(known map[source.Reference]saved) {
	text, err := c.Ledger.Memo()
	c.complain(source.Reference{}, err)
	var m memo
	if json.Unmarshal(text, &m) != nil || len(m.Key) != len(c.key) {
		return
	}
	c.mu.Lock()
	c.key = m.Key
	c.mu.Unlock()
	for _, o := range m.Objects {
		s, there := known[o.Object]
		if !there {
			continue
		}
		for _, l := range o.Lookups {
			if len(l.Sum) == memoSum {
				s.lookups = append(s.lookups, lookup{question{l.Account, l.Namespace, l.Name}, [16]byte(append(l.Sum, make([]byte, 16-memoSum)...)), memoSum})
			}
		}
		known[o.Object] = s
	}
}

// remember has the memo saved soon.
func (c *Controller) remember() {
	if c.Ledger == nil || c.memoDue {
		return
	}
	c.memoDue = true
	c.goes.Go(func() {
		sleep(c.ctx, memoPause)
		c.memorize()
	})
}

// memorize saves the memo. Who cannot has it for as long as the controller runs:
// then a Secret that changes afterwards counts at the next tick.
func (c *Controller) memorize() {
	c.mu.Lock()
	c.memoDue = false
	m := memo{Key: c.key}
	for _, e := range c.sorted {
		if len(e.lookups) == 0 {
			continue
		}
		o := memoEntry{Object: e.ref}
		for _, l := range e.lookups {
			o.Lookups = append(o.Lookups, memoLookup{l.account, l.namespace, l.name, l.sum[:memoSum]})
		}
		m.Objects = append(m.Objects, o)
	}
	c.mu.Unlock()
	text, err := json.Marshal(m)
	if err == nil {
		err = c.Ledger.SetMemo(text)
	}
	if err != nil {
		c.tell(source.Reference{}, "StatusUpdateFailed", err.Error())
	}
}
