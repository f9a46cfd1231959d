package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

// FieldManager is the field manager of the definitions that [Define] applies.
const FieldManager = "headgate-controller"

// Define applies the definitions of a group by server-side apply and waits until the API server
// serves them. If beta is set, version v1beta2 is served too. If another field manager owns the
// spec of a definition, Define changes nothing and returns an error that names it.
func Define(ctx context.Context, config *rest.Config, group string, beta bool) error {
	definitions, err := schema.Definitions(group, beta)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for range maxConflicts { // the API server or another replica may change a definition meanwhile
		if err = apply(ctx, c, definitions); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return err
	}
	return waitServed(ctx, config, c, group)
}

// apply applies all definitions, or none if another field manager owns one. If a definition was
// changed after it was read, the error is a conflict.
func apply(ctx context.Context, c client.Client, definitions []map[string]any) error {
	var foreign []string
	for _, d := range definitions {
		at := metadata(d)
		delete(at, "resourceVersion")
		there := partialDefinition(at)
		err := c.Get(ctx, client.ObjectKeyFromObject(there), there)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("definition %s: %w", at["name"], err)
		}
		at["resourceVersion"] = there.ResourceVersion // a change in between causes a conflict
		if manager := otherManager(there.ManagedFields); manager != "" {
			foreign = append(foreign, there.Name+" ("+manager+")")
		}
	}
	if foreign != nil {
		return fmt.Errorf(`definitions with another field manager are left as they are: %s. Have that manager go on and install none here, or end its work on them and hand each over: `+
			`kubectl patch customresourcedefinition NAME --type=merge --patch='{"metadata":{"managedFields":[{}]}}'`, strings.Join(foreign, ", "))
	}
	for _, d := range definitions {
		text, err := json.Marshal(d)
		if err != nil {
			return err
		}
		options := []client.PatchOption{client.FieldOwner(FieldManager)}
		if metadata(d)["resourceVersion"] != nil { // only fields that no manager owns are overwritten
			options = append(options, client.ForceOwnership)
		}
		if err := c.Patch(ctx, partialDefinition(metadata(d)), client.RawPatch(types.ApplyPatchType, text), options...); err != nil {
			return fmt.Errorf("definition %s: %w", metadata(d)["name"], err)
		}
	}
	return nil
}

func metadata(definition map[string]any) map[string]any {
	return definition["metadata"].(map[string]any)
}

// partialDefinition returns an object with only the metadata that identify a definition.
func partialDefinition(at map[string]any) *metav1.PartialObjectMetadata {
	m := new(metav1.PartialObjectMetadata)
	m.APIVersion, m.Kind, m.Name = "apiextensions.k8s.io/v1", "CustomResourceDefinition", at["name"].(string)
	return m
}

// otherManager returns a field manager that owns the spec, other than this program, or "".
func otherManager(fields []metav1.ManagedFieldsEntry) string {
	for _, e := range fields {
		// The API server records before-first-apply when it applies to an object without a field
		// manager.
		if e.Manager != FieldManager && e.Manager != "before-first-apply" && strings.Contains(e.FieldsV1.GetRawString(), `"f:spec"`) {
			return e.Manager
		}
	}
	return ""
}

// waitServed waits until the API server serves all kinds of a group.
func waitServed(ctx context.Context, config *rest.Config, c client.Client, group string) error {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	waiting, last := "", error(nil)
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := api.ServerResourcesForGroupVersionWithContext(ctx, group+"/"+source.V1)
		for _, k := range source.Kinds(group) {
			if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == k.Plural }) {
				continue
			}
			waiting, last = k.Plural+"."+group, err
			return false, refusalReason(ctx, c, waiting)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("definition %s was applied and is not served: %w", waiting, errors.Join(err, last))
	}
	return nil
}

// refusalReason returns the reason why the API server will not serve a definition, or nil.
func refusalReason(ctx context.Context, c client.Client, name string) error {
	u := new(unstructured.Unstructured)
	u.SetAPIVersion("apiextensions.k8s.io/v1")
	u.SetKind("CustomResourceDefinition")
	if err := c.Get(ctx, types.NamespacedName{Name: name}, u); err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, value := range conditions {
		if one, _ := value.(map[string]any); one["type"] == "NamesAccepted" && one["status"] == "False" {
			return fmt.Errorf("%v", one["message"])
		}
	}
	return nil
}
