package controller

import (
	"context"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/source"
)

// Secret implements [source.Secrets]. It reads from the API server.
func (c *controller) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	var s corev1.Secret
	if err := c.get(ctx, "secret", namespace, name, &s); err != nil {
		return source.Secret{}, err
	}
	return source.Secret{Type: string(s.Type), Data: s.Data}, nil
}

// PullSecrets implements [source.Secrets].
func (c *controller) PullSecrets(ctx context.Context, namespace, account string) (secrets []source.Secret, err error) {
	var a corev1.ServiceAccount
	if err := c.get(ctx, "service account", namespace, account, &a); err != nil {
		return nil, err
	}
	for _, ref := range a.ImagePullSecrets {
		secret, err := c.Secret(ctx, namespace, ref.Name)
		if err != nil {
			return nil, fmt.Errorf("service account %s/%s: %w", namespace, account, err)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// get reads an object from the API server. If the object does not exist, the error wraps
// fs.ErrNotExist.
func (c *controller) get(ctx context.Context, kind, namespace, name string, into client.Object) error {
	ctx, cancel := requestContext(ctx)
	defer cancel()
	err := c.mgr.GetAPIReader().Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return missing(fmt.Sprintf("%s %s/%s does not exist", kind, namespace, name))
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, namespace, name, withGrantAdvice(err))
	}
	return nil
}

// missing is the error for a Secret or service account that does not exist.
type missing string

func (m missing) Error() string        { return string(m) }
func (m missing) Is(target error) bool { return target == fs.ErrNotExist }

// watchSecrets watches the metadata of Secrets and service accounts. The initial list does not
// count as a change.
func (c *controller) watchSecrets(ctx context.Context) error {
	note := func(o any) {
		if last, ok := o.(informers.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if m, ok := o.(client.Object); ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.secrets[client.ObjectKeyFromObject(m)] = true
			c.wake()
		}
	}
	for _, kind := range []string{"Secret", "ServiceAccount"} {
		m := new(metav1.PartialObjectMetadata)
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		informer, err := c.mgr.GetCache().GetInformer(ctx, m, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(informers.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				if !initial {
					note(o)
				}
			},
			UpdateFunc: func(before, now any) {
				a, known := before.(client.Object)
				if b, ok := now.(client.Object); !known || !ok || a.GetResourceVersion() != b.GetResourceVersion() {
					note(now)
				}
			},
			DeleteFunc: note,
		}); err != nil {
			return err
		}
	}
	return nil
}
