#pragma once
#include <strata/error.hpp>

#include <string>
#include <vector>

#include "step/session.hpp"

namespace strata::runtime {

// The session's context for plugins; the partitioner uses all of it.
class Session::Context final : public PartitionContext {
 public:
  explicit Context(Session& session) : session_(session) {}
  const std::vector<FlatParameter*>& flat_parameters() const override { return session_.flat_; }
  Group& group(const std::string& name) override {
    const auto found = session_.groups_.find("partitioner." + name);
    if (found == session_.groups_.end())
      throw Bug("{} asks for a group \"{}\" that its groups() did not name", session_.stage_.partitioner.name, name);
    return *found->second;
  }
  Buffer& buffer(const BufferRequest& request) override {
    const FlatParameterInfo& flat = request.flat->info();
    return session_.stage_.buffers->make({request.category, flat.id}, flat.name, request.elements, request.dtype,
                                         request.resident);
  }
  bool moves(Category category) const override { return session_.stage_.buffers->plan().of(category) != nullptr; }
  bool sums_replicas() const override { return session_.policy_ != config::StepPolicy::Local; }
  StateStore& store() override { return *session_.stage_.store; }
  SlotPool& slots() override { return *session_.stage_.slots; }
  Device& device() override { return *session_.stage_.device; }

 private:
  Session& session_;
};

}  // namespace strata::runtime
