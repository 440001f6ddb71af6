# SPDX-License-Identifier: MIT
"""A small model of Hugging Face transformers learns to count. Its experts are spread over the
ranks, each rank has its own batches, and nothing is downloaded:

    torchrun --nproc-per-node 2 examples/transformers_experts.py
"""
import tempfile

import torch
import torch.distributed as dist
import weft.transformers
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.distributed import DistributedConfig

weft.transformers.register("weft")  # as the import has done; options would stand here
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()
folder = [tempfile.mkdtemp() if rank == 0 else None]
if rank == 0:
    Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, head_dim=16,
        num_key_value_heads=4, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64,
    )).save_pretrained(folder[0])
dist.broadcast_object_list(folder)
model = AutoModelForCausalLM.from_pretrained(folder[0], distributed_config=DistributedConfig(
    fsdp_size=num_ranks, ep_size=num_ranks, ep_implementation="weft"))
optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
for step in range(40):
    first = torch.randint(64, (8, 1), generator=torch.Generator().manual_seed(40 * rank + step))
    ids = ((first + torch.arange(12)) % 64).to(model.device)
    loss = model(ids, labels=ids).loss
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    if rank == 0 and step in (0, 39):
        print(f"step {step}: loss of rank 0 is {loss.item():.3f}", flush=True)
counted = model.eval().generate(ids[:1, :4], max_new_tokens=8, do_sample=False)
print(f"rank {rank} counts: {counted[0].tolist()}", flush=True)
dist.destroy_process_group()
