#include "conformance/general/any_plugin.hpp"

namespace strata::conformance {

AnyPlugin::AnyPlugin(Subject& subject, const fakes::OptionTexts& changed, int rank, MeshShape mesh)
    : context_(subject.library().name(), subject.library().values(changed), rank, mesh),
      plugin_(subject.library().entry().create(context_)) {
  require(plugin_ != nullptr, "the factory returned nothing");
}

AnyPlugin::~AnyPlugin() {
  if (plugin_ == nullptr || is_shut_down_) return;
  try {
    plugin_->shutdown();
  } catch (...) {  // general.corners requires it
  }
}

void AnyPlugin::shutdown() {
  is_shut_down_ = true;
  plugin_->shutdown();
}

void AnyPlugin::finish() {
  shutdown();
  plugin_.reset();
}

}  // namespace strata::conformance
