package controller

import (
	"context"

	"github.com/headgate-io/headgate/source"
)

// restore returns what the ledger knows.
func (c *Controller) restore(ctx context.Context) map[source.Reference]saved { return nil }

// retire removes artifacts, status and state of an object.
func (c *Controller) retire(ctx context.Context, obj source.Object) error { return nil }

// scrub hashes artifacts again, and calls repair where one is damaged, until ctx ends.
func (c *Controller) scrub(ctx context.Context) {}

// saveHold makes a suspension durable, or with nil its end.
func (c *Controller) saveHold(obj source.Object, hold *source.Suspension) error { return nil }
