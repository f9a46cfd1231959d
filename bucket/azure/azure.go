// Package azure reads buckets of Azure Blob Storage (provider azure) (reference A10).
package azure

import (
	"context"
	"errors"

	_ "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/headgate-io/headgate/bucket"
)

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	return nil, errors.ErrUnsupported
}
