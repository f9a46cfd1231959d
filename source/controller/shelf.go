package controller

import "context"

// shelve has the document of an object that does not run saved, so that what is
// saved says that it is suspended, and that there is one.
func (c *Controller) shelve(e *entry) {
	if c.Ledger == nil || external(e.obj) || e.state == running { // the end of its run has it shelved
		return
	}
	if c.shelf = append(c.shelf, e); len(c.shelf) == 1 {
		c.goes.Go(func() { c.clearShelf(c.ctx) })
	}
}

// clearShelf saves the documents of those who are shelved.
func (c *Controller) clearShelf(ctx context.Context) {
	for {
		c.mu.Lock()
		if len(c.shelf) == 0 || ctx.Err() != nil {
			c.shelf = nil
			c.mu.Unlock()
			return
		}
		e := c.shelf[0]
		c.mu.Unlock()
		c.saveDocument(ctx, e)
		c.mu.Lock()
		c.shelf = c.shelf[1:]
		c.mu.Unlock()
	}
}

// saveDocument saves the document that e has now with the saved status. What
// cannot be is told by its next run.
func (c *Controller) saveDocument(ctx context.Context, e *entry) {
	unlock, err := c.Store.Lock(ctx, directory(e.ref))
	if err != nil {
		return
	}
	defer unlock()
	c.mu.Lock()
	doc, due := e.doc, e.doc != nil && e.removed == nil && e.suspended() && c.entries[e.ref] == e
	c.mu.Unlock()
	if !due {
		return
	}
	obj := clone(doc)
	if state, err := c.Ledger.Load(ctx, obj); err == nil {
		_ = c.Ledger.Save(ctx, obj, state)
	}
}
